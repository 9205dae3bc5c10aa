"""Every refusal has its code, names the request, and shows nothing of the caller's."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from tests.server.clips import clip
from tests.server.wire import GrpcCall, call, generate, generate_stream
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
NAN, INF = float("nan"), float("inf")


def latents_like(server: TritonServer, width_change: int = 0, value: float = 0.0) -> np.ndarray:
    patch = call(server, max_length=1, return_latents=True).latents
    return np.full((len(patch), patch.shape[1] + width_change), value, np.float32)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"text": ""}, "INVALID_TEXT"),
        ({"text": " \n\t "}, "INVALID_TEXT"),
        ({"text": b"\xff\xfe\x00"}, "INVALID_TEXT"),
        ({"text": "word " * 20_000}, "TOO_LARGE"),
        ({"cfg_value": NAN}, "INVALID_PARAMETER"),
        ({"cfg_value": INF}, "INVALID_PARAMETER"),
        ({"cfg_value": 0.0}, "INVALID_PARAMETER"),
        ({"temperature": -0.1}, "INVALID_PARAMETER"),
        ({"temperature": NAN}, "INVALID_PARAMETER"),
        ({"inference_timesteps": 0}, "INVALID_PARAMETER"),
        ({"inference_timesteps": 1}, "INVALID_PARAMETER"),
        ({"inference_timesteps": 1_000_000}, "INVALID_PARAMETER"),
        ({"max_length": 0}, "INVALID_PARAMETER"),
        ({"min_length": -1}, "INVALID_PARAMETER"),
        ({"format": "flv"}, "INVALID_PARAMETER"),
        ({"encoding": "hex"}, "INVALID_PARAMETER"),
        ({"prompt_text": "alone"}, "CONFLICTING_INPUTS"),
        ({"prompt_audio": clip()}, "CONFLICTING_INPUTS"),
        ({"prompt_audio": b"not base64!", "prompt_text": "x", "encoding": "base64"}, "INVALID_AUDIO"),
    ],
)
def test_refusals(triton_server: TritonServer, inputs: dict[str, Any], code: str):
    answer = call(triton_server, **inputs)
    assert answer.code == code
    assert answer.chunks == []


def test_latents_of_another_width(triton_server: TritonServer):
    latents = latents_like(triton_server, width_change=1)
    assert call(triton_server, reference_latents=latents).code == "INVALID_LATENTS"


@pytest.mark.parametrize("value", [NAN, INF])
def test_latents_that_are_not_finite(triton_server: TritonServer, value: float):
    latents = latents_like(triton_server, value=value)
    assert call(triton_server, prompt_latents=latents, prompt_text="x").code == "INVALID_LATENTS"


def test_audio_and_latents_of_the_same_role(triton_server: TritonServer):
    latents = latents_like(triton_server)
    answer = call(triton_server, prompt_audio=clip(), prompt_latents=latents, prompt_text="x")
    assert answer.code == "CONFLICTING_INPUTS"


def test_messages_name_the_request_and_hold_no_text(triton_server: TritonServer):
    inputs = {"target_text": "SECRETSECRET", "max_length": 0}
    (error,) = GrpcCall(triton_server, inputs, request_id="who-asks").finish().errors
    assert "[INVALID_PARAMETER] request who-asks: " in error
    for leak in ("SECRET", "Traceback", ".py", "/"):
        assert leak not in error


def test_an_unknown_parameter_over_generate(triton_server: TritonServer):
    status, answer = generate(triton_server, {"target_text": "hi", "cfg_vale": 2.0, "stream": False})
    assert status == 400
    assert "[INVALID_PARAMETER]" in answer["error"]
    assert "'cfg_vale'" in answer["error"]


def test_an_unknown_parameter_over_grpc(triton_server: TritonServer):
    call_with = GrpcCall(triton_server, {"target_text": "hi"}, parameters={"voice_speed": 2})
    assert call_with.finish().code == "INVALID_PARAMETER"


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_non_finite_numbers_over_generate(triton_server: TritonServer, value: str):
    status, answer = generate(triton_server, f'{{"target_text": "hi", "stream": false, "cfg_value": {value}}}'.encode())
    assert status == 400
    assert "error" in answer


def test_an_error_over_generate_stream(triton_server: TritonServer):
    status, events = generate_stream(triton_server, {"target_text": " "})
    assert status == 400
    assert events[0]["error"].startswith("[INVALID_TEXT] request vx-")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", 500), (b"{", 500), (b"[]", 500), (b'{"target_text": 5}', 500), (b'{"target_text": ["a", "b"]}', 400),
        (b"{}", 400),
    ],
)
def test_broken_json_is_answered_and_the_server_lives_on(triton_server: TritonServer, body: bytes, expected: int):
    status, answer = generate(triton_server, body)
    assert status == expected  # what Triton itself refuses has its own statuses
    assert "error" in answer
    assert call(triton_server, max_length=1).errors == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"target_text": "hi", "stream": false, "id": "\xff"}',
        b'{"target_text": "hi", "stream": false, "x\xff": 1}',
        b'{"target_text": "\xff", "stream": false}',
    ],
)
def test_json_that_is_not_utf8(triton_server: TritonServer, body: bytes):
    status, answer = generate(triton_server, body)
    assert status == 400
    assert answer["error"].startswith("[INVALID_")
    assert "/" not in answer["error"]


@pytest.mark.parametrize(
    "text",
    ["😀🎉", "\u200f\u200e", "\u202eabc", "<s>", "<|audio_start|>", "</s><unk>", "你好，世界", "(sad)", "\x00", "ﷺ"],
)
def test_unusual_texts_are_spoken_or_silent(triton_server: TritonServer, text: str):
    answer = call(triton_server, text, max_length=2)
    assert answer.errors == []
    assert answer.audio


def test_base64_of_an_empty_prompt(triton_server: TritonServer):
    empty = base64.b64encode(b"").decode()
    assert call(triton_server, reference_audio=empty, encoding="base64").code == "INVALID_AUDIO"
