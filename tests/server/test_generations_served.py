"""The two older generations on a real server: their rates in every format, prompts, and no reference."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import soundfile
import soxr

from tests.server.clips import clip
from tests.server.wire import Answer, call, generate
from tests.server_process import make_server, require_installation
from voxcpm_client.server import TritonServer
from voxcpm_core.checkpoint.random_init import make_checkpoint

pytestmark = pytest.mark.server
NUM_PATCHES = 120  # tiny models make a thousandth of a second a patch
MP3_DELAY_SAMPLES = 1105


class Served(NamedTuple):
    server: TritonServer
    rate: int  # Hz, of the model
    opus_rate: int  # when none is asked for


@pytest.fixture(scope="module", params=[("0.5", 16_000, 16_000), ("1.5", 44_100, 48_000)], ids=["0.5", "1.5"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    require_installation(dict(os.environ))
    generation, rate, opus_rate = request.param
    folder = tmp_path_factory.mktemp("generation")
    make_checkpoint(folder / "model", "tiny", generation)
    with make_server(folder / "tritonserver.log", VOXCPM_MODEL=str(folder / "model")) as server:
        yield Served(server, rate, opus_rate)


def speak(served: Served, **options: object) -> Answer:
    fixed = {"seed": 5, "inference_timesteps": 2, "ignore_stop": True, "length_cap": False, "max_length": NUM_PATCHES}
    answer = call(served.server, "It was so before.", **{**fixed, **options})
    assert answer.errors == []
    return answer


@pytest.fixture(scope="module")
def pcm(served: Served) -> np.ndarray:
    """[samples] at the model's own rate."""
    return np.frombuffer(speak(served, format="pcm_f32le").audio, "<f4")


def decoded(audio: bytes) -> tuple[np.ndarray, int]:
    return soundfile.read(io.BytesIO(audio), dtype="float32")


@pytest.mark.parametrize("format", ["wav", "flac"])
def test_the_own_rate(served: Served, pcm: np.ndarray, format: str):
    (chunk,) = speak(served, format=format, stream=False).chunks
    samples, rate = decoded(chunk["audio"])
    assert rate == chunk["sample_rate"] == served.rate
    np.testing.assert_allclose(samples, pcm, atol=2 / 32768)  # rounded, and of 32767 steps


def test_mp3(served: Served, pcm: np.ndarray):
    answer = speak(served, format="mp3")
    samples, rate = decoded(answer.audio)
    assert rate == served.rate
    assert sum(chunk["num_samples"] for chunk in answer.chunks) == len(pcm)
    speech = samples[MP3_DELAY_SAMPLES : MP3_DELAY_SAMPLES + len(pcm)]
    assert np.corrcoef(speech, pcm)[0, 1] > 0.9


def test_opus_is_resampled_where_it_has_no_such_rate(served: Served, pcm: np.ndarray):
    (chunk,) = speak(served, format="opus", stream=False).chunks
    samples, rate = decoded(chunk["audio"])
    assert rate == chunk["sample_rate"] == served.opus_rate
    expected = soxr.resample(pcm, served.rate, served.opus_rate)
    assert len(samples) == chunk["num_samples"] == len(expected)
    assert np.corrcoef(samples, expected)[0, 1] > 0.9


@pytest.mark.parametrize("rate", [8_000, 22_050])
def test_another_rate_is_continuous_across_chunks(served: Served, pcm: np.ndarray, rate: int):
    answer = speak(served, format="pcm_f32le", sample_rate=rate)
    assert len(answer.chunks) >= 2
    samples = np.frombuffer(answer.audio, "<f4")
    np.testing.assert_allclose(samples, np.clip(soxr.resample(pcm, served.rate, rate), -1, 1), atol=1e-6)


def test_a_prompt_is_continued(served: Served):
    plain = speak(served, max_length=20).audio
    assert speak(served, max_length=20, prompt_audio=clip(), prompt_text="a tone").audio != plain


def test_a_reference_is_refused(served: Served):
    answer = call(served.server, reference_audio=clip())
    assert answer.code == "INVALID_PARAMETER"
    status, refusal = generate(served.server, {"target_text": "x", "stream": False, "reference_latents": [0.0] * 64})
    assert status == 400
    assert refusal["error"].startswith("[INVALID_PARAMETER] request ")
