"""The checkpoint that ships speaks: a recogniser understands sentences that the real server makes of it."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from demo_voice.errors_of_words import total
from demo_voice.flite import SAMPLE_RATE_HZ
from demo_voice.pitch import median_f0_hz
from demo_voice.recognise import recognise, word_errors
from tests.server_process import make_server, require_installation
from voxcpm_client import Client, Speech
from voxcpm_client.server import TritonServer, find_repository

pytestmark = pytest.mark.server

SENTENCES = (
    "The train leaves at seven in the morning.",
    "My sister has a small house near the river.",
    "They walked to the station after dinner.",
    "Please close the window before you go.",
    "He found an old letter in the kitchen.",
    "We will visit our friends next week.",
    "The children are playing in the garden.",
    "She wants to buy a new car this year.",
    "It was raining when I came home.",
    "The doctor said that everything was fine.",
)
NUM_OF_THE_GIANT = 4
MAX_WORD_ERROR_RATE = 0.15  # of random weights it is about 1
F0_HZ, GIANT_F0_HZ = 102.0, 73.7  # medians of what flite says as rms and as the giant
MAX_F0_ERROR = 0.08
MAX_FOLLOWING_ERROR = 0.15  # the references are a quarter apart


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    require_installation(dict(os.environ))
    folder: Path = tmp_path_factory.mktemp("demo")
    (folder / "loras").mkdir()
    settings = {"VOXCPM_MODEL": "demo", "VOXCPM_LORA_ROOT": str(folder / "loras"), "VOXCPM_LORAS": "giant=demo://giant"}
    with make_server(folder / "tritonserver.log", repository=find_repository(), **settings) as server:
        yield server


def say_all(server: TritonServer, texts: Sequence[str], **options: Any) -> list[Speech]:
    with Client(url=server.grpc_url) as client, ThreadPoolExecutor(len(texts)) as threads:
        return list(threads.map(lambda text: client.synthesize(text, seed=1, **options), texts))


def assert_understood(speeches: Sequence[Speech], texts: Sequence[str]) -> None:
    heard = [recognise(np.frombuffer(speech.audio, "<i2")) for speech in speeches]
    errors = total(word_errors(text, words) for text, words in zip(texts, heard, strict=True))
    assert errors.rate <= MAX_WORD_ERROR_RATE, list(zip(texts, heard, strict=True))


def f0_hz(speeches: Sequence[Speech]) -> float:
    return median_f0_hz(np.concatenate([np.frombuffer(speech.audio, "<i2") for speech in speeches]), SAMPLE_RATE_HZ)


def test_ten_sentences_are_understood(server: TritonServer) -> None:
    speeches = say_all(server, SENTENCES)
    assert {speech.sample_rate for speech in speeches} == {SAMPLE_RATE_HZ}
    assert {speech.finish_reason for speech in speeches} == {"stop"}
    assert f0_hz(speeches) == pytest.approx(F0_HZ, rel=MAX_F0_ERROR)
    assert_understood(speeches, SENTENCES)


def test_the_pitch_follows_the_reference(server: TritonServer) -> None:
    """References are the demo's own voice, played slower or faster."""
    spoken = np.concatenate([np.frombuffer(speech.audio, "<i2") for speech in say_all(server, SENTENCES[:2])])
    followed = []
    for speed in (0.8, 1.0, 1.25):
        reference = np.interp(np.arange(0, len(spoken), speed), np.arange(len(spoken)), spoken).astype("<i2")
        file = io.BytesIO()
        soundfile.write(file, reference, SAMPLE_RATE_HZ, format="WAV")
        speeches = say_all(server, SENTENCES[2:5], reference_audio=file.getvalue())
        assert f0_hz(speeches) == pytest.approx(median_f0_hz(reference, SAMPLE_RATE_HZ), rel=MAX_FOLLOWING_ERROR)
        followed.append(f0_hz(speeches))
    assert followed == sorted(followed)


def test_the_example_adapter_speaks_with_its_own_voice(server: TritonServer) -> None:
    with Client(url=server.grpc_url) as client:
        (giant,) = client.loras()
    assert (giant.name, giant.source) == ("giant", "demo://giant"), "it is on the list of the settings"
    # The recogniser does not understand him: he is far below what it was made for, in the source, too.
    speeches = say_all(server, SENTENCES[:NUM_OF_THE_GIANT], lora="giant")
    assert {speech.finish_reason for speech in speeches} == {"stop"}
    assert f0_hz(speeches) == pytest.approx(GIANT_F0_HZ, rel=MAX_F0_ERROR)
