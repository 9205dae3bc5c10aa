"""Prompts and references, by audio and by latents, and latents as outputs."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from tests.server.clips import BAD_CLIPS, ODD_CLIPS, clip
from tests.server.wire import GrpcCall, call, generate
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server


def test_latents_alone_are_those_that_come_with_audio(triton_server: TritonServer):
    inputs = {"target_text": "Hello world", "max_length": 5, "seed": 1}
    both = call(triton_server, max_length=5, seed=1, return_latents=True)
    alone = GrpcCall(triton_server, inputs, outputs=("latents", "is_last", "num_samples")).finish()
    assert both.latents.dtype == np.float32
    np.testing.assert_allclose(alone.latents, both.latents, atol=1e-5)
    assert not any("audio" in chunk for chunk in alone.chunks)
    assert {chunk["num_samples"] for chunk in alone.chunks} == {0}


def test_latents_round_trip_as_prompt_and_reference(triton_server: TritonServer):
    latents = call(triton_server, max_length=4, min_length=4, seed=1, return_latents=True).latents
    answer = call(
        triton_server, prompt_latents=latents, prompt_text="Hello world", reference_latents=latents, max_length=4
    )
    assert answer.errors == []
    assert answer.audio


def test_a_flat_list_of_latents_over_generate_is_read_row_major(triton_server: TritonServer):
    latents = call(triton_server, max_length=2, min_length=2, seed=1, return_latents=True).latents
    body = {
        "target_text": "Hello", "prompt_text": "Hello world", "max_length": 3, "seed": 2, "stream": False,
        "encoding": "base64", "prompt_latents": [float(value) for value in latents.reshape(-1)],
    }
    status, answer = generate(triton_server, body)
    assert status == 200, answer
    expected = call(triton_server, "Hello", prompt_text="Hello world", prompt_latents=latents, max_length=3, seed=2)
    got = np.frombuffer(base64.b64decode(answer["audio"]), "<i2").astype(int)
    assert np.abs(got - np.frombuffer(expected.audio, "<i2")).max() <= 1


@pytest.mark.parametrize("name", ODD_CLIPS)
def test_odd_audio_files_work(triton_server: TritonServer, name: str):
    data = ODD_CLIPS[name]()
    answer = call(
        triton_server, prompt_audio=data, prompt_text="a tone", reference_audio=data, max_length=2, cfg_value=2.0
    )
    assert answer.errors == []
    assert answer.audio


def test_a_prompt_changes_the_speech(triton_server: TritonServer):
    plain = call(triton_server, max_length=3, seed=1).audio
    cloned = call(triton_server, max_length=3, seed=1, prompt_audio=clip(), prompt_text="a tone").audio
    assert cloned != plain


def test_base64_audio_over_generate_equals_raw_over_grpc(triton_server: TritonServer):
    data = clip()
    body = {
        "target_text": "Hello world", "reference_audio": base64.b64encode(data).decode(), "encoding": "base64",
        "max_length": 3, "seed": 4, "stream": False,
    }
    status, answer = generate(triton_server, body)
    assert status == 200, answer
    expected = call(triton_server, reference_audio=data, max_length=3, seed=4).audio
    assert base64.b64decode(answer["audio"]) == expected


@pytest.mark.parametrize("role", ["prompt_audio", "reference_audio"])
@pytest.mark.parametrize("name", BAD_CLIPS)
def test_bad_audio_files_are_refused(triton_server: TritonServer, name: str, role: str):
    inputs = {role: BAD_CLIPS[name](), **({"prompt_text": "x"} if role == "prompt_audio" else {})}
    assert call(triton_server, **inputs).code == "INVALID_AUDIO"
