"""Many callers at once."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.server.instance import Instance
from tests.server.wire import GrpcCall, call
from tests.stopped import stopped
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
BURST_S = 8.0
LONG = {"target_text": "A very long story", "ignore_stop": True, "length_cap": False}


def test_sixteen_streams_each_as_alone(triton_server: TritonServer):
    requests = [
        {"target_text": f"Sentence number {i}", "seed": i, "max_length": 3 + i % 5, "min_length": 3 + i % 5}
        for i in range(16)
    ]
    crowd = [GrpcCall(triton_server, inputs, request_id=f"c{i}") for i, inputs in enumerate(requests)]
    answers = [each.finish() for each in crowd]
    for index, (inputs, answer) in enumerate(zip(requests, answers, strict=True)):
        assert answer.errors == []
        assert answer.num_finals == 1
        assert {chunk["request_id"] for chunk in answer.chunks} == {f"c{index}".encode()}
        alone = GrpcCall(triton_server, inputs).finish()
        together_pcm, alone_pcm = (np.frombuffer(a.audio, "<i2").astype(int) for a in (answer, alone))
        assert together_pcm.shape == alone_pcm.shape
        assert np.abs(together_pcm - alone_pcm).max() <= 1


def test_a_burst_is_handed_over_at_once(triton_server: TritonServer):
    """To a single instance Triton would hand it over in the course of 12 s or more."""
    inputs = {"target_text": "At once.", "inference_timesteps": 2, "max_length": 1}
    ids = [f"burst-{index}" for index in range(64)]
    with Instance(triton_server) as instance:
        instance.wait_until_idle()
        with stopped([instance.status()["worker_pid"]]):  # what it takes to make the patches does not count
            start_s = time.monotonic()
            burst = [GrpcCall(triton_server, inputs, request_id=request_id) for request_id in ids]
            instance.wait_until_it_waits(*ids)
            assert time.monotonic() - start_s < BURST_S
    assert all(each.finish().errors == [] for each in burst)


def test_mixed_timesteps_and_guidance_share_the_engine(triton_server: TritonServer):
    settings = [(2, 1.0), (5, 2.0), (10, 3.0), (10, 2.0)]
    crowd = [
        GrpcCall(
            triton_server,
            {"target_text": "mixed", "inference_timesteps": steps, "cfg_value": cfg, "max_length": 3, "seed": 1},
        )
        for steps, cfg in settings
    ]
    answers = [each.finish() for each in crowd]
    for (steps, cfg), answer in zip(settings, answers, strict=True):
        alone = call(triton_server, "mixed", inference_timesteps=steps, cfg_value=cfg, max_length=3, seed=1)
        difference = np.frombuffer(answer.audio, "<i2").astype(int) - np.frombuffer(alone.audio, "<i2")
        assert np.abs(difference).max() <= 1


def test_a_deadline_ends_a_long_stream(triton_server: TritonServer):
    answer = call(triton_server, length_cap=False, ignore_stop=True, max_length=3000, deadline_ms=700)
    (error,) = answer.errors
    assert "[DEADLINE_EXCEEDED]" in error
    assert answer.chunks
    assert call(triton_server, max_length=1, deadline_ms=60_000).errors == []


def test_a_bad_request_is_answered_while_others_run(triton_server: TritonServer):
    running = GrpcCall(triton_server, LONG)
    assert running.next_event()
    assert call(triton_server, " ").code == "INVALID_TEXT"
    assert running.next_event()
    running.cancel()
