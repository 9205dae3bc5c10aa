"""`retry_badcase` on the real server."""

from __future__ import annotations

import base64
import time

import numpy as np
import pytest

from tests.server.wire import GrpcCall, call, generate, generate_stream
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
WHOLE = {"stream": False, "inference_timesteps": 2, "seed": 50}
ENDLESS = {"ignore_stop": True}  # every attempt runs to its limit


def samples(audio: bytes) -> np.ndarray:
    return np.frombuffer(audio, "<i2").astype(int)


def test_a_bad_case_is_made_three_times_and_carries_the_seed_that_made_it(triton_server: TritonServer):
    (chunk,) = call(triton_server, "Hi", retry_badcase=True, **ENDLESS, **WHOLE).chunks
    alone = call(triton_server, "Hi", **ENDLESS, **{**WHOLE, "seed": 52})
    assert chunk["seed"] == 52
    assert chunk["finish_reason"] == b"length"
    assert np.abs(samples(chunk["audio"]) - samples(alone.audio)).max() <= 1


def test_a_good_case_is_that_of_the_request_without_retry(triton_server: TritonServer):
    once = call(triton_server, "Hello world", max_length=8, **WHOLE)
    (chunk,) = call(triton_server, "Hello world", max_length=8, retry_badcase=True, **WHOLE).chunks
    assert chunk["seed"] == 50
    assert np.abs(samples(chunk["audio"]) - samples(once.audio)).max() <= 1


def test_it_works_over_generate(triton_server: TritonServer):
    body = {"target_text": "Hi", "retry_badcase": True, "encoding": "base64", "format": "wav", **ENDLESS, **WHOLE}
    status, answer = generate(triton_server, body)
    assert status == 200, answer
    assert answer["seed"] == 52
    assert base64.b64decode(answer["audio"])[:4] == b"RIFF"


def test_it_is_refused_for_a_stream(triton_server: TritonServer):
    assert call(triton_server, retry_badcase=True).code == "INVALID_PARAMETER"
    status, (event,) = generate_stream(triton_server, {"target_text": "Hi", "retry_badcase": True})
    assert status == 400
    assert "[INVALID_PARAMETER]" in event["error"]


def test_a_deadline_ends_the_attempts(triton_server: TritonServer):
    options = {"retry_badcase": True, "stream": False, "deadline_ms": 500, **ENDLESS}
    start_s = time.monotonic()
    assert call(triton_server, "A sentence of some words " * 8, **options).code == "DEADLINE_EXCEEDED"
    assert time.monotonic() - start_s < 0.5 + 5 * 0.3


def test_a_caller_who_leaves_ends_the_attempts(triton_server: TritonServer):
    inputs = {"target_text": "Hi", "retry_badcase": True, "stream": False, **ENDLESS}
    for wait_s in (0.05, 0.4, 0.9):
        request = GrpcCall(triton_server, inputs)
        time.sleep(wait_s)
        request.cancel()
    assert call(triton_server, max_length=1).errors == []
