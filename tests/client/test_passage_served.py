"""A passage on the real engine: the noise voice, which hides no click and no gap."""

from __future__ import annotations

import numpy as np
import pytest

from voxcpm_client import Client
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server

FIRST = "Streaming speech, sentence by sentence."
TEXT = FIRST + " Each one continues the first. And the last one ends it."
FAST = {"seed": 4, "max_length": 4, "inference_timesteps": 2}
FADE = 240  # samples: 5 ms at 48 kHz


@pytest.fixture(scope="module")
def client(triton_server: TritonServer) -> Client:
    return Client(url=triton_server.grpc_url)


def test_the_first_sentence_is_the_one_that_stream_gives(client: Client) -> None:
    alone = client.synthesize(FIRST, **FAST)
    passage = b"".join(chunk.audio for chunk in client.stream_text(FIRST, **FAST))
    assert passage == alone.audio


def test_sentences_are_joined_without_a_click(client: Client) -> None:
    end = client.synthesize(FIRST, **FAST).num_samples
    chunks = list(client.stream_text(TEXT, **FAST))
    samples = np.frombuffer(b"".join(chunk.audio for chunk in chunks), "<i2").astype(np.int32)
    steps = np.abs(np.diff(samples))
    pause = 48000 // 4
    join = steps[end - FADE : end + pause + FADE]
    inside = steps[: end - FADE]
    assert inside.max() > 1000, "the noise itself has large steps"
    assert join.max() <= inside.max()
    assert np.abs(samples[end - 2 : end + pause // 2]).max() < inside.max() / 10
    assert chunks[-1].is_last
    assert chunks[-1].finish_reason in ("stop", "length")


def test_the_same_seed_gives_the_same_passage_however_the_text_arrives(client: Client) -> None:
    whole = b"".join(chunk.audio for chunk in client.stream_text(TEXT, **FAST))
    pieces = b"".join(chunk.audio for chunk in client.stream_text(list(TEXT), **FAST))
    assert pieces == whole


def test_a_reference_voice_runs_ahead(client: Client) -> None:
    voice = client.synthesize(FIRST, format="wav", **FAST).audio
    one = b"".join(chunk.audio for chunk in client.stream_text(TEXT, reference_audio=voice, ahead=0, **FAST))
    many = b"".join(chunk.audio for chunk in client.stream_text(TEXT, reference_audio=voice, ahead=3, **FAST))
    assert len(many) == len(one)
    np.testing.assert_allclose(np.frombuffer(many, "<i2"), np.frombuffer(one, "<i2"), atol=2)
