"""The engine behind its thread: what callers in other threads see."""

import numpy as np
import pytest

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd
from tests.worker.streams import ENDLESS, GENEROUS_S, submit, wait_until
from voxcpm_core.engine.threaded import ThreadedEngine
from voxcpm_core.errors import RequestError


@pytest.fixture
def engine(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    engine = ThreadedEngine(harness.core, harness.model, harness.config, harness.tokenizer)
    yield engine
    engine.close()


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
    monkeypatch.setattr(engine._loop.core, "step", lambda: 1 / 0)
    assert running.has_ended.wait(GENEROUS_S)
    _, late = submit(engine, ENDLESS)
    assert late.has_ended.wait(GENEROUS_S)
    assert running.error_code == "INTERNAL"
    assert late.error_code in ("INTERNAL", "NOT_READY")


def test_a_lost_device_ends_everybody_and_the_engine(engine, monkeypatch):
    """After a fault that CUDA does not survive no later step can succeed, so none is tried."""
    _, running = submit(engine, ENDLESS)
    assert running.has_patch.wait(GENEROUS_S)
    runner = engine._loop.core.runner
    monkeypatch.setattr(runner, "require_device", lambda: 1 / 0)
    monkeypatch.setattr(runner, "collect", lambda step: 1 / 0)
    assert running.has_ended.wait(GENEROUS_S)
    assert running.error_code == "INTERNAL"
    wait_until(lambda: not engine.is_ready)


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


def test_encoding_is_that_of_the_prompt_and_ends_with_the_engine(engine):
    waveform = np.sin(np.arange(5001, dtype=np.float32) / 9)  # no whole number of patches
    latents = engine.encode(waveform, "left").result(GENEROUS_S)
    assert latents.shape[1] == engine.model.feat_dim
    assert latents.shape[0] % engine.model.patch_size == 0
    assert np.abs(latents - engine.encode(waveform, "right").result(GENEROUS_S)).max() > 1e-3
    engine.close()
    with pytest.raises(RequestError, match="shutting down"):
        engine.encode(waveform, "left").result(GENEROUS_S)
