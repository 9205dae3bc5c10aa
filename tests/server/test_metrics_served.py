"""The metrics endpoint of a real server against what its clients saw."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from tests.server.instance import Instance
from tests.server.scraped import Scrape, wait_for_scrape
from tests.server.streams import LONG, GrpcStream
from tests.server.wire import GrpcCall, call, generate
from tests.server_process import with_one_instance
from voxcpm_client.server import TritonServer
from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.catalog import METRICS, Kind
from voxcpm_core.metrics.instance import FLUSH_S

pytestmark = pytest.mark.server
RATE = 48000
FLOOR_S = 0.03  # what lies between model and client, for each chunk: two processes, gRPC, a busy machine
ENDINGS = ("finished", "cancelled", "failed", "rejected")


@dataclass
class Heard:
    """What the callers of some streams measured."""

    ttfa_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    durations_s: list[float] = field(default_factory=list)
    audio_s: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def listen(self, server: TritonServer, **inputs: object) -> None:
        sent_s = time.monotonic()
        stream = GrpcCall(server, {"target_text": "Measured by both.", **inputs})
        arrivals_s = []
        while not (stream.answer.chunks and stream.answer.chunks[-1]["is_last"]):
            assert stream.next_event()
            arrivals_s.append(time.monotonic())
        chunks = stream.finish().chunks
        self.ttfa_s.append(arrivals_s[0] - sent_s)
        self.gaps_s += [later - earlier for earlier, later in pairwise(arrivals_s)]
        self.durations_s.append(arrivals_s[-1] - sent_s)
        self.audio_s.append(sum(chunk["num_samples"] for chunk in chunks) / RATE)
        self.reasons.append(chunks[-1]["finish_reason"].decode())


def post(server: TritonServer, verb: str) -> int:
    """Load or unload the model."""
    connection = http.client.HTTPConnection(server.http_url, timeout=120)
    try:
        connection.request("POST", f"/v2/repository/models/voxcpm/{verb}", b"{}")
        return connection.getresponse().status
    finally:
        connection.close()


def is_idle(scrape: Scrape) -> bool:
    ended = sum(scrape.value(f"voxcpm_requests_{ending}_total") for ending in ENDINGS)
    return ended == scrape.value("voxcpm_requests_received_total") and scrape.value("voxcpm_running_requests") == 0


class Growth:
    """How counters have grown since."""

    def __init__(self, server: TritonServer) -> None:
        self._server = server
        with Instance(server) as instance:  # a stream of an earlier test may just have been left
            instance.wait_until_idle()
        time.sleep(2 * FLUSH_S)
        self._before = wait_for_scrape(server, is_idle)

    def of(self, scrape: Scrape, name: str, **labels: str) -> float:
        return scrape.value(name, **labels) - self._before.value(name, **labels)

    def when_received(self, number: int) -> Scrape:
        """Once so many more requests have come and ended."""
        received = "voxcpm_requests_received_total"
        return wait_for_scrape(self._server, lambda now: is_idle(now) and self.of(now, received) >= number)


def times_agree(growth: Growth, now: Scrape, heard: Heard) -> bool:
    """Whether the metrics and the client do within 10 %; a busy machine delays the client alone."""
    expected = {
        "voxcpm_time_to_first_audio_seconds": heard.ttfa_s,
        "voxcpm_chunk_gap_seconds": heard.gaps_s,
        "voxcpm_request_duration_seconds": heard.durations_s,
        "voxcpm_real_time_ratio": [d / a for d, a in zip(heard.durations_s, heard.audio_s, strict=True)],
    }
    agree = True
    for name, measured in expected.items():
        assert growth.of(now, f"{name}_count") == growth.of(now, f"{name}_bucket", le="+Inf") == len(measured), name
        floor = FLOOR_S * len(measured)
        agree &= growth.of(now, f"{name}_sum") == pytest.approx(sum(measured), rel=0.1, abs=floor)
    for name in ("voxcpm_time_to_first_audio_seconds", "voxcpm_request_duration_seconds"):
        assert growth.of(now, f"{name}_sum") <= sum(expected[name]), name
    return agree


def test_times_are_those_of_the_client(triton_server: TritonServer):
    for _ in range(4):
        growth, heard = Growth(triton_server), Heard()
        for index in range(5):
            heard.listen(triton_server, seed=index, max_length=12)
        now = growth.when_received(5)
        if times_agree(growth, now, heard):
            break
    else:
        pytest.fail("in no round the times were those of the client")
    assert growth.of(now, "voxcpm_audio_seconds_total") == pytest.approx(sum(heard.audio_s))
    for reason in ("stop", "length"):
        assert growth.of(now, "voxcpm_requests_finished_total", reason=reason) == heard.reasons.count(reason)
    num_patches = growth.of(now, "voxcpm_step_batch_size_sum")
    assert num_patches >= sum(heard.audio_s) / 0.16
    assert growth.of(now, "voxcpm_step_batch_size_count") == num_patches, "one request at a time"
    steps_s = growth.of(now, "voxcpm_step_seconds_sum")
    assert 0.5 * sum(heard.durations_s) < steps_s < sum(heard.durations_s)


def test_every_ending_is_counted_once(triton_server: TritonServer):
    growth = Growth(triton_server)
    assert call(triton_server, max_length=2, stream=False).errors == []
    assert call(triton_server, max_length=2, return_latents=True).errors == []
    assert GrpcCall(triton_server, {"target_text": "x", "max_length": 2}, outputs=("latents",)).finish().errors == []
    assert call(triton_server, " ").code == "INVALID_TEXT"
    assert generate(triton_server, {"target_text": "x", "cfg_value": 99.0, "stream": False})[0] == 400
    assert GrpcCall(triton_server, {**LONG, "deadline_ms": 200}).finish().code == "DEADLINE_EXCEEDED"
    streams = [GrpcStream(triton_server, LONG) for _ in range(3)]
    for stream in streams:
        assert stream.next_chunk()
    busy = wait_for_scrape(triton_server, lambda now: now.value("voxcpm_kv_pages_used") > 0)
    assert busy.value("voxcpm_running_requests") > 0
    assert busy.value("voxcpm_kv_pages_used") <= busy.value("voxcpm_kv_pages")
    wait_for_scrape(triton_server, lambda now: now.value("voxcpm_running_requests") == 3)
    wait_for_scrape(triton_server, lambda now: now.value("voxcpm_open_requests") == 3)
    for stream in streams:
        stream.leave()
    now = growth.when_received(9)
    counted = {name: growth.of(now, f"voxcpm_requests_{name}_total") for name in ("received", "admitted", *ENDINGS)}
    assert counted == {"received": 9, "admitted": 7, "finished": 3, "cancelled": 3, "failed": 1, "rejected": 2}
    assert growth.of(now, "voxcpm_requests_failed_total", code="DEADLINE_EXCEEDED") == 1
    for code in ("INVALID_TEXT", "INVALID_PARAMETER"):
        assert growth.of(now, "voxcpm_requests_rejected_total", code=code) == 1
    assert growth.of(now, "voxcpm_queue_wait_seconds_count") == growth.of(now, "voxcpm_prefills_total") == 7


def test_all_metrics_are_there_with_their_labels(triton_server: TritonServer):
    scrape = Scrape(triton_server)
    with Instance(triton_server) as instance:
        status = instance.status()
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind.value}\n" in scrape.text
        for labels in scrape.labels(metric.name if metric.kind is not Kind.HISTOGRAM else f"{metric.name}_count"):
            assert set(labels) == {*catalog.LABELS, *filter(None, [metric.label])}
            assert labels["model_instance"] == status["instance"]
            assert (labels["model"], labels["version"], labels["gpu_uuid"]) == ("voxcpm", "1", "cpu")
    for name, key in (("max_running_requests", "max_running"), ("kv_pages", "pages_total"), ("ready", "ready")):
        assert scrape.value(f"voxcpm_{name}") == status[key]


def test_a_killed_worker_and_a_reload(start_server: Callable[..., TritonServer], tmp_path: Path):
    repository = with_one_instance(tmp_path)
    server = start_server(repository=repository, arguments=("--model-control-mode=explicit", "--load-model=voxcpm"))
    stream = GrpcStream(server, LONG)
    assert stream.next_chunk()
    with Instance(server) as instance:
        os.kill(instance.status()["worker_pid"], signal.SIGKILL)
        wait_for_scrape(server, lambda now: now.value("voxcpm_ready") == 0)
        assert call(server, max_length=2).code == "NOT_READY"
        instance.wait_for(num_restarts=1, ready=True)
    now = wait_for_scrape(server, lambda now: now.value("voxcpm_ready") == 1)
    assert now.value("voxcpm_worker_restarts_total") == 1
    assert now.value("voxcpm_requests_failed_total", code="INTERNAL") == 1
    assert now.value("voxcpm_requests_rejected_total", code="NOT_READY") == 1
    # The new instances are there before the old ones go, with Triton's word for them the same.
    (old,) = now.labels("voxcpm_ready")
    (repository / "voxcpm" / "1" / "model.py").touch()
    assert post(server, "load") == 200
    wait_for_scrape(server, lambda now: old not in now.labels("voxcpm_ready") and now.value("voxcpm_ready") == 1)
    assert call(server, max_length=2).errors == []
    wait_for_scrape(server, lambda now: now.value("voxcpm_requests_finished_total") == 1)
    assert post(server, "unload") == 200
    wait_for_scrape(server, lambda now: not any(name.startswith("voxcpm_") for name in now.names()))
    assert server.exit_code() is None
