"""The checkpoint that ships speaks: a recogniser understands sentences that the real server makes of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from demo_voice.errors_of_words import total
from demo_voice.flite import SAMPLE_RATE_HZ
from demo_voice.recognise import recognise, word_errors
from voxcpm_client import Speech, synthesize
from voxcpm_client.server import TritonServer

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
MAX_WORD_ERROR_RATE = 0.5  # of random weights it is about 1


def test_ten_sentences_are_understood(start_server: Callable[..., TritonServer]) -> None:
    server = start_server(VOXCPM_MODEL="demo")

    def say(text: str) -> Speech:
        return synthesize(text, url=server.grpc_url, seed=1)

    with ThreadPoolExecutor(len(SENTENCES)) as threads:
        speeches = list(threads.map(say, SENTENCES))
    assert {speech.sample_rate for speech in speeches} == {SAMPLE_RATE_HZ}
    assert {speech.finish_reason for speech in speeches} == {"stop"}
    heard = [recognise(np.frombuffer(speech.audio, "<i2")) for speech in speeches]
    errors = total(word_errors(text, words) for text, words in zip(SENTENCES, heard, strict=True))
    assert errors.rate <= MAX_WORD_ERROR_RATE, list(zip(SENTENCES, heard, strict=True))
