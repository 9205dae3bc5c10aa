"""Many callers at once, and callers who leave."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.server.wire import GrpcCall, call
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
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


def test_leaving_frees_the_slot_and_the_waiting_places(start_server: Callable[..., TritonServer]):
    server = start_server(VOXCPM_MAX_RUNNING="1", VOXCPM_MAX_WAITING="1")
    running = GrpcCall(server, LONG, request_id="running")
    assert running.next_event()
    waiting = GrpcCall(server, LONG, request_id="waiting")
    blocked = GrpcCall(server, LONG, request_id="blocked")
    time.sleep(0.5)
    start_s = time.monotonic()
    for each in (waiting, blocked, running):
        each.cancel()
    assert call(server, max_length=1).errors == []
    assert time.monotonic() - start_s < 10


def test_a_caller_who_hangs_up_over_http_frees_the_slot(start_server: Callable[..., TritonServer]):
    server = start_server(VOXCPM_MAX_RUNNING="1", VOXCPM_MAX_WAITING="1")
    connection = http.client.HTTPConnection(server.http_url, timeout=30)
    connection.request("POST", "/v2/models/voxcpm/generate_stream", json.dumps({**LONG, "encoding": "base64"}))
    response = connection.getresponse()
    assert response.readline().startswith(b"data:")
    response.close()
    connection.close()
    start_s = time.monotonic()
    assert call(server, max_length=1).errors == []
    assert time.monotonic() - start_s < 10


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
