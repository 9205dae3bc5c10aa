"""What callers hear: formats, streaming and not, gRPC and HTTP."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import soundfile
import soxr

from tests.noise_voice import NOISE_FOLDER
from tests.server.wire import Answer, call, generate, generate_stream
from voxcpm_client.server import TritonServer
from voxcpm_core.checkpoint.opened import open_checkpoint

pytestmark = pytest.mark.server
PATCHES = 6
SAMPLES_PER_PATCH = 7680  # of the noise voice


def decoded(audio: bytes, format: str, rate: int) -> np.ndarray:
    """Samples of a finished file; a streamed wav header's unknown sizes are filled in first."""
    if format == "pcm_f32le":
        return np.frombuffer(audio, "<f4").astype(np.float64)
    if format == "pcm_s16le":
        return np.frombuffer(audio, "<i2").astype(np.float64) / 32768
    if format == "wav" and audio[4:8] == b"\xff\xff\xff\xff":
        return np.frombuffer(audio[44:], "<i2").astype(np.float64) / 32768
    samples, found_rate = soundfile.read(io.BytesIO(audio))
    assert found_rate == rate
    return samples


FORMATS = [
    *((name, stream) for name in ("pcm_s16le", "pcm_f32le", "wav", "mp3") for stream in (True, False)),
    ("flac", False),
    ("opus", False),
]


@pytest.mark.parametrize(("format", "stream"), FORMATS)
def test_each_format(triton_server: TritonServer, format: str, stream: bool):
    answer = call(triton_server, format=format, stream=stream, max_length=PATCHES, min_length=PATCHES, seed=7)
    assert answer.errors == []
    assert answer.num_finals == 1
    chunks = answer.chunks
    assert len(chunks) >= 2 if stream else len(chunks) == 1
    assert [chunk["chunk_index"] for chunk in chunks] == list(range(len(chunks)))
    assert [chunk["is_last"] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["finish_reason"] == b"length"
    assert {chunk["seed"] for chunk in chunks} == {7}
    assert all(chunk["audio"] for chunk in chunks[:-1])
    rate, num_samples = chunks[0]["sample_rate"], sum(chunk["num_samples"] for chunk in chunks)
    samples = decoded(answer.audio, format, rate)
    if format == "mp3":
        assert num_samples <= len(samples) + 1105
        assert len(samples) <= num_samples + 1105 + 1152
    else:
        assert len(samples) == num_samples
    assert np.abs(samples).max() > 1e-4


@pytest.mark.parametrize("format", ["wav", "mp3", "opus"])
@pytest.mark.parametrize("rate", [8000, 24000])
def test_another_rate(triton_server: TritonServer, format: str, rate: int):
    options = {"format": format, "stream": False, "max_length": PATCHES, "min_length": PATCHES, "seed": 7}
    (own,), (other,) = (call(triton_server, **options, **extra).chunks for extra in ({}, {"sample_rate": rate}))
    assert other["sample_rate"] == rate
    assert other["num_samples"] / rate == pytest.approx(own["num_samples"] / own["sample_rate"], abs=2 / rate)
    assert soundfile.info(io.BytesIO(other["audio"])).samplerate == rate


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 96_000])
def test_another_rate_is_continuous_across_chunks(triton_server: TritonServer, rate: int):
    options = {"format": "pcm_f32le", "max_length": 12, "min_length": 12, "seed": 7, "inference_timesteps": 2}
    own, other = (call(triton_server, **options, **extra) for extra in ({}, {"sample_rate": rate}))
    expected = soxr.resample(np.frombuffer(own.audio, "<f4"), own.chunks[0]["sample_rate"], rate)
    assert len(other.chunks) >= 4
    assert sum(chunk["num_samples"] for chunk in other.chunks) == len(expected)
    np.testing.assert_allclose(np.frombuffer(other.audio, "<f4"), np.clip(expected, -1, 1), atol=1e-6)


@pytest.mark.parametrize("format", ["pcm_s16le", "wav", "mp3"])
def test_streaming_changes_no_byte_of_the_sound(triton_server: TritonServer, format: str):
    streamed, whole = (
        call(triton_server, format=format, stream=stream, max_length=PATCHES, seed=3).audio for stream in (True, False)
    )
    header = 44 if format == "wav" else 0
    assert streamed[header:] == whole[header:]


@pytest.mark.parametrize("format", ["pcm_s16le", "wav", "mp3"])
def test_base64_over_generate(triton_server: TritonServer, format: str):
    status, answer = generate(
        triton_server,
        {"target_text": "Hello world", "format": format, "stream": False, "encoding": "base64", "max_length": PATCHES,
         "seed": 3, "id": "http-1"},
    )
    assert status == 200, answer
    expected = call(triton_server, format=format, stream=False, max_length=PATCHES, seed=3).audio
    assert base64.b64decode(answer["audio"]) == expected
    assert answer["request_id"] == "http-1"
    assert answer["is_last"] is True


def test_the_mp3_bitrate_is_the_one_asked_for(triton_server: TritonServer):
    sizes = [len(call(triton_server, format="mp3", bitrate=kbits, max_length=8, seed=1).audio) for kbits in (64, 256)]
    assert sizes[1] == pytest.approx(4 * sizes[0], rel=0.05)
    assert call(triton_server, format="mp3", bitrate=65).code == "INVALID_PARAMETER"


def test_base64_over_generate_stream(triton_server: TritonServer):
    status, events = generate_stream(
        triton_server,
        {"target_text": "Hello world", "format": "mp3", "encoding": "base64", "max_length": PATCHES, "seed": 3},
    )
    assert status == 200
    assert [event["chunk_index"] for event in events] == list(range(len(events)))
    assert [event["is_last"] for event in events] == [False] * (len(events) - 1) + [True]
    audio = b"".join(base64.b64decode(event["audio"]) for event in events)
    assert audio == call(triton_server, format="mp3", max_length=PATCHES, seed=3).audio


def test_a_drawn_seed_reproduces_the_speech(triton_server: TritonServer):
    first = call(triton_server, max_length=PATCHES)
    seed = first.chunks[0]["seed"]
    assert 0 <= seed < 2**53
    assert call(triton_server, max_length=PATCHES, seed=seed).audio == first.audio
    assert call(triton_server, max_length=PATCHES, seed=seed + 1).audio != first.audio


def test_a_request_without_an_id_gets_one(triton_server: TritonServer):
    (chunk,) = call(triton_server, max_length=1).chunks
    assert chunk["request_id"].startswith(b"vx-")


def test_max_length_1_is_one_patch(triton_server: TritonServer):
    answer = call(triton_server, max_length=1, return_latents=True)
    assert len(answer.chunks) == 1
    assert answer.chunks[0]["finish_reason"] == b"length"
    two = call(triton_server, max_length=2, min_length=2, return_latents=True)
    assert len(two.latents) == 2 * len(answer.latents)


def num_patches(answer: Answer) -> int:
    assert answer.errors == []
    return sum(chunk["num_samples"] for chunk in answer.chunks) // SAMPLES_PER_PATCH


def test_the_length_cap_is_six_patches_a_token_and_ten(triton_server: TritonServer):
    text = "Count."
    cap = 6 * len(open_checkpoint(str(NOISE_FOLDER)).tokenizer.encode(text)) + 10
    endless = {"ignore_stop": True, "inference_timesteps": 2}
    capped = call(triton_server, text, **endless)
    assert num_patches(capped) == num_patches(call(triton_server, text, max_length=cap + 3, **endless)) == cap
    assert capped.chunks[-1]["finish_reason"] == b"length"
    assert num_patches(call(triton_server, text, max_length=cap + 3, length_cap=False, **endless)) == cap + 3


def test_stopping_and_the_least_length(triton_server: TritonServer):
    """The noise voice stops at random; a seed with which it does so early is looked for."""
    most = 80
    options = {"inference_timesteps": 2, "length_cap": False, "max_length": most}
    answers = {seed: call(triton_server, seed=seed, **options) for seed in range(4)}
    seed, early = min(answers.items(), key=lambda item: num_patches(item[1]))
    assert early.chunks[-1]["finish_reason"] == b"stop"
    stopped = num_patches(early)
    assert num_patches(call(triton_server, seed=seed, min_length=stopped, **options)) >= stopped + 2
    on_and_on = call(triton_server, seed=seed, ignore_stop=True, **options)
    assert num_patches(on_and_on) == most
    assert on_and_on.audio.startswith(early.audio)
