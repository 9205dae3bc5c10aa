"""Utterances joined: nothing lost, no click, the pause that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voxcpm_client import Chunk, errors
from voxcpm_client.passage.joiner import PcmJoiner, request_format

RATE = 16000
FADE = 80  # samples: 5 ms
LOUD = 12000


def _chunk(samples: np.ndarray, index: int = 0, is_last: bool = False, reason: str = "", rate: int = RATE) -> Chunk:
    return Chunk(samples.tobytes(), index, len(samples), rate, is_last, reason, 1, "r", np.ones((2, 3), np.float32))


def _tone(num_samples: int, phase: float = 0.0) -> np.ndarray:
    return np.rint(LOUD * np.cos(phase + np.arange(num_samples) / 20)).astype("<i2")


def _join(utterances: list[list[np.ndarray]], pauses_ms: list[int], audio_format: str = "pcm_s16le") -> list[Chunk]:
    joiner = PcmJoiner(audio_format, seed=9, keep_latents=False)
    chunks = []
    for parts, pause_ms in zip(utterances, pauses_ms, strict=True):
        chunks.append(joiner.begin(pause_ms))
        chunks += [
            joiner.feed(_chunk(part, index, index == len(parts) - 1, "stop" if index == len(parts) - 1 else ""))
            for index, part in enumerate(parts)
        ]
    chunks.append(joiner.finish())
    return [chunk for chunk in chunks if chunk is not None]


def _samples(chunks: list[Chunk], dtype: str = "<i2") -> np.ndarray:
    return np.frombuffer(b"".join(chunk.audio for chunk in chunks), dtype)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=6))
def test_one_utterance_stays_as_it_is(lengths: list[int]) -> None:
    parts = [_tone(length) for length in lengths]
    chunks = _join([parts], [0])
    np.testing.assert_array_equal(_samples(chunks), np.concatenate(parts))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(chunk.audio for chunk in chunks[:-1])
    assert [chunk.num_samples for chunk in chunks] == [len(chunk.audio) // 2 for chunk in chunks]
    assert {chunk.seed for chunk in chunks} == {9}
    assert all(chunk.latents is None for chunk in chunks)


@given(
    st.lists(st.lists(st.integers(0, 500), min_size=1, max_size=4), min_size=2, max_size=4),
    st.sampled_from([0, 100]),
    st.floats(0, 6),
)
def test_no_step_at_a_join_is_larger_than_those_inside(lengths: list[list[int]], pause_ms: int, phase: float) -> None:
    """Where a bare join would make a step of up to 24,000 there is the tone's own and the fade's."""
    tones = [_tone(2 * FADE + sum(parts), phase * n) for n, parts in enumerate(lengths)]
    utterances = [np.split(tone, np.cumsum(parts)) for tone, parts in zip(tones, lengths, strict=True)]
    joined = _samples(_join(utterances, [pause_ms] * len(utterances))).astype(np.int32)
    assert np.abs(np.diff(joined)).max() <= LOUD / 20 + LOUD * np.pi / 2 / FADE + 2
    num_silent = (len(tones) - 1) * pause_ms * RATE // 1000
    assert 0 <= sum(map(len, tones)) + num_silent - len(joined) <= 3 * len(tones), "quiet ends count as silence"


def test_the_spectrum_of_a_join_holds_no_click() -> None:
    """Above 4 kHz a join has hardly more energy than the tone inside; a bare join has a thousand times as much."""
    first, second = _tone(4000), _tone(4000, np.pi)

    def treble(samples: np.ndarray) -> float:
        spectrum = np.fft.rfft(samples[3500:4500] * np.hanning(1000))
        return float((np.abs(spectrum[250:]) ** 2).sum())

    joined = _samples(_join([[first], [second]], [0, 0])).astype(np.float64)
    bare = np.concatenate([first, second]).astype(np.float64)
    assert treble(joined) < treble(bare) / 100


def test_the_pause_counts_the_quiet_that_is_there() -> None:
    quiet = np.zeros(1600, "<i2")  # 100 ms
    pauses = {}
    for pause_ms in (50, 250):
        joined = _samples(_join([[_tone(4000), quiet], [_tone(4000)]], [0, pause_ms]))
        pauses[pause_ms] = len(joined) - 8000
    assert pauses == {50: 1600, 250: 4000}


def test_a_join_is_heard_as_soon_as_it_is_known() -> None:
    joiner = PcmJoiner("pcm_s16le", seed=1, keep_latents=False)
    assert joiner.begin(0) is None
    assert joiner.feed(_chunk(_tone(1000))).num_samples == 1000 - FADE
    ending = joiner.begin(100)
    assert ending is not None
    assert ending.num_samples == FADE + 1600


def test_formats() -> None:
    tone = [[_tone(500)], [_tone(500)]]
    wav = b"".join(chunk.audio for chunk in _join(tone, [0, 0], "wav"))
    pcm = b"".join(chunk.audio for chunk in _join(tone, [0, 0]))
    assert wav[44:] == pcm
    assert wav[:4] + wav[8:16] + wav[36:44] == b"RIFFWAVEfmt data\xff\xff\xff\xff"
    floats = [[part.astype("<f4") / 2**15 for part in parts] for parts in tone]
    joined = _samples(_join(floats, [0, 0], "pcm_f32le"), "<f4")
    np.testing.assert_allclose(joined, np.frombuffer(pcm, "<i2") / 2**15, atol=1 / 2**15)
    assert [request_format(name) for name in ("pcm_s16le", "wav", "pcm_f32le")] == ["pcm_s16le"] * 2 + ["pcm_f32le"]
    for name in ("mp3", "flac", "opus", "PCM"):
        with pytest.raises(errors.InvalidParameter, match="joined as pcm_s16le, wav, pcm_f32le"):
            request_format(name)


def test_the_reason_and_the_latents() -> None:
    joiner = PcmJoiner("pcm_s16le", seed=1, keep_latents=True)
    chunks = [joiner.feed(_chunk(_tone(40))), joiner.feed(_chunk(_tone(400), 1, True, "length"))]
    joiner.begin(0)
    chunks += [joiner.feed(_chunk(_tone(400), 0, True, "stop")), joiner.finish()]
    assert chunks[0] is None
    assert [chunk.finish_reason for chunk in chunks[1:]] == ["", "", "length"]
    assert [None if chunk.latents is None else len(chunk.latents) for chunk in chunks[1:]] == [4, 2, None]


def test_what_does_not_fit() -> None:
    joiner = PcmJoiner("pcm_s16le", seed=1, keep_latents=False)
    joiner.feed(_chunk(_tone(100)))
    with pytest.raises(errors.StreamBroken, match="changed from 16000 to 8000 Hz"):
        joiner.feed(_chunk(_tone(100), rate=8000))
    with pytest.raises(errors.StreamBroken, match="5 bytes"):
        joiner.feed(Chunk(b"audio", 0, 160, RATE, False, "", 1, "r"))
