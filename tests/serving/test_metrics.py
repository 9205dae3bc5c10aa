"""The metrics of an instance on an engine without a model, with requests that end in every way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.serving.fake_engine import FakeEngine
from tests.serving.fake_metrics import FakeMetrics
from tests.serving.fake_triton import FakeBackend, FakeRequest, text
from tests.serving.served import GENEROUS_S, MODEL, speech
from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.local.status import InstanceName
from voxcpm_core.serving.instance import Instance
from voxcpm_core.text.tokenizer import TextTokenizer

NAME = InstanceName("voxcpm", "3", "voxcpm_0")
ALONE = InstancePlace("voxcpm", "3", "voxcpm_0", "KIND_GPU 0", index=0, count=1)
STEP_S = 0.01


def endless(request_id: str, **inputs: np.ndarray) -> FakeRequest:
    return speech(request_id, patches=2000, length_cap=np.array([False]), **inputs)


class Loaded:
    def __init__(self, tokenizer: TextTokenizer, metrics: FakeMetrics) -> None:
        config = EngineConfig(model="fake", max_running=2, max_waiting=5)
        self.engine = FakeEngine(MODEL, tokenizer, config, step_s=STEP_S)
        self.backend = FakeBackend(metrics)
        self.metrics = metrics
        self.instance = Instance(NAME, ALONE, self.engine, self.backend)

    def run(self, *requests: FakeRequest) -> None:
        self.instance.execute(requests)
        for request in requests:
            assert request.sender.final.wait(GENEROUS_S)
            assert request.sender.violations == []

    def wait_for(self, value: float, name: str, **labels: str) -> None:
        end_s = time.monotonic() + GENEROUS_S
        while self.metrics.value(name, **labels) != value:
            assert time.monotonic() < end_s, f"{name}: {self.metrics.value(name, **labels)} after {GENEROUS_S} s"
            time.sleep(0.002)


@pytest.fixture
def load(
    tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Loaded]]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    loaded: list[Loaded] = []

    def start(**options: bool) -> Loaded:
        loaded.append(Loaded(tokenizer, FakeMetrics(**options)))
        return loaded[-1]

    yield start
    for each in loaded:
        each.instance.close()


def test_requests_that_end_in_every_way_are_counted_once(load: Callable[..., Loaded]):
    one = load()
    one.engine.stops_at[77] = 3
    one.engine.fails_at["broken"] = 2
    left, late = endless("left"), endless("late", deadline_ms=np.array([50], np.int32))
    one.run(speech("a"), speech("b", seed=np.array([77], np.int64)), speech("broken"))
    left.sender.gone.set()
    blank = FakeRequest({"target_text": text(" ")})
    one.run(left, late, blank, speech("odd", format=text("midi")))
    one.wait_for(7, "voxcpm_requests_received_total")
    one.wait_for(1, "voxcpm_requests_finished_total", reason="length")
    one.wait_for(1, "voxcpm_requests_finished_total", reason="stop")
    one.wait_for(1, "voxcpm_requests_cancelled_total")
    one.wait_for(1, "voxcpm_requests_failed_total", code="INTERNAL")
    one.wait_for(1, "voxcpm_requests_failed_total", code="DEADLINE_EXCEEDED")
    one.wait_for(1, "voxcpm_requests_rejected_total", code="INVALID_TEXT")
    one.wait_for(1, "voxcpm_requests_rejected_total", code="INVALID_PARAMETER")
    for name, total in (("finished", 2), ("failed", 2), ("rejected", 2)):
        assert one.metrics.value(f"voxcpm_requests_{name}_total") == total
    one.wait_for(0, "voxcpm_open_requests")
    assert not [line for line in one.backend.Logger.lines if "metric" in line]


def test_levels_and_labels_while_it_runs(load: Callable[..., Loaded]):
    one = load()
    requests = [endless(f"r{index}") for index in range(5)]
    one.instance.execute(requests)
    one.wait_for(2, "voxcpm_running_requests", model="voxcpm", version="3", model_instance="voxcpm_0", gpu_uuid="GPU-0")
    one.wait_for(3, "voxcpm_waiting_requests")
    one.wait_for(5, "voxcpm_open_requests")
    for name, value in (("max_running_requests", 2), ("max_waiting_requests", 5), ("kv_pages", 10_000), ("ready", 1)):
        assert one.metrics.value(f"voxcpm_{name}") == value
    assert abs(one.metrics.value("voxcpm_updated_timestamp_seconds") - time.time()) < 30
    for request in requests:
        request.sender.gone.set()
    one.wait_for(0, "voxcpm_running_requests")
    one.wait_for(5, "voxcpm_requests_cancelled_total")


def test_draining_shows_in_levels_and_codes(load: Callable[..., Loaded]):
    one = load()
    one.wait_for(0, "voxcpm_draining")
    running, late = endless("running"), endless("late")
    one.instance.execute([running])
    one.wait_for(1, "voxcpm_running_requests")
    one.instance._adapter.drain.begin(0)
    one.run(late)
    one.wait_for(1, "voxcpm_draining")
    one.wait_for(0, "voxcpm_ready")
    one.wait_for(1, "voxcpm_requests_failed_total", code="DRAINING")
    one.wait_for(1, "voxcpm_requests_rejected_total", code="DRAINING")


def test_times_are_those_of_the_chunks(load: Callable[..., Loaded]):
    one = load()
    start_s = time.monotonic()
    one.run(speech(patches=20))
    took_s = time.monotonic() - start_s
    one.wait_for(1, "voxcpm_requests_finished_total")
    assert 20 * STEP_S <= one.metrics.observations("voxcpm_request_duration_seconds")[0] <= took_s
    (first_s,) = one.metrics.observations("voxcpm_time_to_first_audio_seconds")
    gaps_s = one.metrics.observations("voxcpm_chunk_gap_seconds")
    assert STEP_S <= first_s <= took_s
    assert first_s + sum(gaps_s) == pytest.approx(one.metrics.observations("voxcpm_request_duration_seconds")[0])
    audio_s = 20 * MODEL.samples_per_patch / MODEL.vae.sample_rate
    assert one.metrics.value("voxcpm_audio_seconds_total") == pytest.approx(audio_s)


def test_a_stream_that_becomes_audio_elsewhere_counts_as_its_audio(load: Callable[..., Loaded]):
    one = load()
    request = speech(patches=6)
    request.output_names = ("latents", "stream_id")
    one.run(request)
    one.wait_for(1, "voxcpm_requests_finished_total")
    audio_s = 6 * MODEL.samples_per_patch / MODEL.vae.sample_rate
    assert one.metrics.value("voxcpm_audio_seconds_total") == pytest.approx(audio_s)
    assert len(one.metrics.observations("voxcpm_time_to_first_audio_seconds")) == 1


def test_steps_and_restarts(load: Callable[..., Loaded]):
    one = load()
    one.engine.num_restarts = 2
    one.run(speech("a", patches=9), speech("b", patches=9))
    one.wait_for(2, "voxcpm_worker_restarts_total")
    one.wait_for(0, "voxcpm_running_requests")
    assert sum(one.metrics.observations("voxcpm_step_batch_size")) == 18
    assert one.metrics.observations("voxcpm_step_seconds") == pytest.approx([STEP_S] * one.engine.num_steps)


@pytest.mark.parametrize("options", [{"is_off": True}, {"has_histograms": False}])
def test_it_serves_without(load: Callable[..., Loaded], options: dict[str, bool]):
    one = load(**options)
    one.run(speech())
    if "is_off" in options:
        assert [line for line in one.backend.Logger.lines if "metrics are disabled" in line]
        assert one.metrics.values == {}
    else:
        one.wait_for(1, "voxcpm_time_to_first_audio_seconds_count")


def test_a_server_whose_metrics_break_later_serves_on(load: Callable[..., Loaded]):
    one = load()
    one.metrics.fails = True
    for index in range(3):
        one.run(speech(f"r{index}"))
    end_s = time.monotonic() + GENEROUS_S
    while not (lines := [line for line in one.backend.Logger.lines if "metric" in line]):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    assert len(lines) == 1


def test_close_ends_the_thread_and_takes_the_series_back(load: Callable[..., Loaded]):
    one = load()
    one.run(speech())
    one.instance.close()
    assert one.metrics.values == one.metrics.observed == {}
    assert one.metrics.violations == []
    assert not any(thread.name == "voxcpm-metrics" for thread in threading.enumerate())
