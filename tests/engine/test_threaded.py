"""The engine behind its thread: what callers in other threads see."""

import threading

import pytest

from tests.engine.harness import SMALL, Harness, Received
from tests.engine.requests import crowd
from voxcpm_core.engine import ThreadedEngine
from voxcpm_core.prepare import prepare
from voxcpm_core.types import SamplingParams, SpeechRequest

GENEROUS_S = 30.0
ENDLESS = SpeechRequest("Hello", params=SamplingParams(ignore_stop=True, length_cap=False, seed=1))


class Waiting(Received):
    """Received events, and a flag for the first patch and for the end."""

    def __init__(self) -> None:
        super().__init__()
        self.has_patch, self.has_ended = threading.Event(), threading.Event()

    def __call__(self, event) -> None:
        super().__call__(event)
        if self.patches:
            self.has_patch.set()
        if self.ended:
            self.has_ended.set()


@pytest.fixture
def engine(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    engine = ThreadedEngine(harness.core, harness.model, harness.config, harness.tokenizer)
    yield engine
    engine.close()


def submit(engine: ThreadedEngine, request: SpeechRequest) -> tuple[int, Waiting]:
    received = Waiting()
    prepared = prepare(request, engine.model, engine.config, engine.tokenizer, lambda: 1)
    return engine.submit(prepared, received), received


def test_requests_get_what_a_driven_engine_gives(engine, tiny_checkpoints):
    requests = crowd(6)
    received = [submit(engine, request)[1] for request in requests]
    driven = Harness(tiny_checkpoints["2"], SMALL)
    for request, stream in zip(requests, received, strict=True):
        assert stream.has_ended.wait(GENEROUS_S)
        stream.check_order()
        assert stream.latents == pytest.approx(driven.run(request).latents, abs=1e-5)


def test_cancel_ends_one_stream_and_unknown_ids_are_ignored(engine):
    stream_id, received = submit(engine, ENDLESS)
    assert received.has_patch.wait(GENEROUS_S)
    engine.cancel(stream_id + 1)
    engine.cancel(stream_id)
    engine.cancel(stream_id)
    assert received.has_ended.wait(GENEROUS_S)
    assert received.error_code == "CANCELLED"


def test_a_fault_of_the_loop_itself_answers_everybody(engine, monkeypatch):
    _, running = submit(engine, ENDLESS)
    assert running.has_patch.wait(GENEROUS_S)
    monkeypatch.setattr(engine._core, "step", lambda: 1 / 0)
    assert running.has_ended.wait(GENEROUS_S)
    _, late = submit(engine, ENDLESS)
    assert late.has_ended.wait(GENEROUS_S)
    assert running.error_code == "INTERNAL"
    assert late.error_code in ("INTERNAL", "NOT_READY")


def test_close_ends_what_runs_and_refuses_what_comes(engine):
    _, running = submit(engine, ENDLESS)
    assert running.has_patch.wait(GENEROUS_S)
    engine.close()
    engine.close()
    _, late = submit(engine, ENDLESS)
    for received in (running, late):
        assert received.error_code == "NOT_READY"
        assert str(received.events[-1].error).endswith("retry after 1000 ms")
    assert (engine.stats().running, engine.stats().pages_used) == (0, 0)
