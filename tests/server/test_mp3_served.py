"""The laws of a streamed MP3, on what the server sends: place, length, rate, and no click where chunks meet."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache

import lameenc
import numpy as np
import pytest
import soundfile

from tests.server.wire import Answer, call
from voxcpm_client.server import TritonServer

DELAY_SAMPLES = 1105
NUM_PATCHES = 12
OWN_RATE = 48_000  # Hz, of the noise voice
CASES = [  # Hz, kbit/s; 48,000 Hz is not resampled
    (48_000, 320), (48_000, 128), (48_000, 32), (44_100, 192), (32_000, 64),
    (24_000, 160), (22_050, 64), (16_000, 32), (12_000, 64), (11_025, 40), (8_000, 16),
]
BANDS = 12
MOST_DB = 1.0  # of difference in any band; a click makes tens


def speak(server: TritonServer, rate: int, **options: object) -> Answer:
    extra = {} if rate == OWN_RATE else {"sample_rate": rate}
    answer = call(
        server, "Long enough for five chunks.", seed=11, min_length=NUM_PATCHES, max_length=NUM_PATCHES,
        **extra, **options,
    )
    assert answer.errors == []
    return answer


@cache
def pcm_of(server: TritonServer, rate: int) -> np.ndarray:
    """[samples] that the MP3 of the same seed and rate is made of."""
    return np.frombuffer(speak(server, rate, format="pcm_f32le").audio, "<f4")


def decoded(data: bytes) -> tuple[np.ndarray, int]:
    return soundfile.read(io.BytesIO(data), dtype="float32")


def encoded_at_once(pcm: np.ndarray, rate: int, kbits: int) -> bytes:
    encoder = lameenc.Encoder()
    encoder.set_channels(1)
    encoder.set_in_sample_rate(rate)
    encoder.set_out_sample_rate(rate)
    encoder.set_bit_rate(kbits)
    encoder.set_quality(5)
    encoder.silence()
    samples = (np.clip(pcm, -1, 1) * 32767).round().astype("<i2").tobytes()
    return bytes(encoder.encode(samples)) + bytes(encoder.flush())


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Of what both have, in the lower eighth of the band: MP3 leaves out much of the highs of noise."""
    length = min(len(one), len(other))
    low = [np.convolve(signal[:length], np.hanning(16), "valid") for signal in (one, other)]
    return float(np.corrcoef(*low)[0, 1])


def worst_band_db(one: np.ndarray, other: np.ndarray, borders: list[int], frame: int = 256) -> float:
    """The largest difference of their spectra, by bands, in frames that lie on a border."""
    worst = 0.0
    for border in borders:
        for start in (border - frame * 3 // 4, border - frame // 2, border - frame // 4):
            worst = max(worst, np.abs(band_levels_db(one, start, frame) - band_levels_db(other, start, frame)).max())
    return worst


def band_levels_db(signal: np.ndarray, start: int, frame: int) -> np.ndarray:
    """[BANDS], over a floor of 16-bit rounding."""
    power = np.abs(np.fft.rfft(signal[start : start + frame] * np.hanning(frame))) ** 2
    floor = frame * (1 / 32768) ** 2
    return 10 * np.log10([band.sum() + floor * len(band) for band in np.array_split(power[1:], BANDS)])


@pytest.mark.server
@pytest.mark.parametrize(("rate", "kbits"), CASES)
def test_place_length_and_rate(triton_server: TritonServer, rate: int, kbits: int):
    answer = speak(triton_server, rate, format="mp3", bitrate=kbits)
    samples, found_rate = decoded(answer.audio)
    assert found_rate == rate
    assert {chunk["sample_rate"] for chunk in answer.chunks} == {rate}
    pcm = pcm_of(triton_server, rate)
    assert sum(chunk["num_samples"] for chunk in answer.chunks) == len(pcm)
    frame = 1152 if rate >= 32_000 else 576
    assert 0 <= len(samples) - DELAY_SAMPLES - len(pcm) < frame
    match = {shift: correlation(samples[DELAY_SAMPLES + shift :], pcm) for shift in range(-8, 9)}
    assert max(match, key=match.__getitem__) == 0
    assert match[0] > 0.9
    kbits_found = 8 * len(answer.audio) * rate / len(samples) / 1000
    assert kbits_found == pytest.approx(kbits, rel=0.02)


@pytest.mark.server
@pytest.mark.parametrize(("rate", "kbits"), CASES)
def test_no_click_where_chunks_meet(triton_server: TritonServer, rate: int, kbits: int):
    answer = speak(triton_server, rate, format="mp3", bitrate=kbits)
    assert len(answer.chunks) >= 4
    borders = [DELAY_SAMPLES + int(end) for end in np.cumsum([chunk["num_samples"] for chunk in answer.chunks])[:-1]]
    pcm = pcm_of(triton_server, rate)
    whole, _ = decoded(encoded_at_once(pcm, rate, kbits))
    streamed, _ = decoded(answer.audio)
    assert worst_band_db(streamed, whole, borders) < MOST_DB
    clicking = pcm.copy()
    clicking[[border - DELAY_SAMPLES for border in borders]] += 0.5
    assert worst_band_db(decoded(encoded_at_once(clicking, rate, kbits))[0], whole, borders) > 3 * MOST_DB


def _with_a_click(parts: list[np.ndarray]) -> list[np.ndarray]:
    """A spike of a tenth of full scale on the first sample of each chunk."""
    return [part + 0.1 * (np.arange(len(part)) == 0) for part in parts]


def _with_a_gap(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Eight samples lost at the end of each chunk, and silence in their place."""
    return [np.where(np.arange(len(part)) < len(part) - 8, part, 0.0) for part in parts]


@pytest.mark.parametrize("damage", [_with_a_click, _with_a_gap])
@pytest.mark.parametrize(("rate", "kbits"), CASES)
def test_the_test_hears_a_click(damage: Callable[[list[np.ndarray]], list[np.ndarray]], rate: int, kbits: int):
    pcm, length = tone(rate), rate // 5
    parts = [pcm[start : start + length] for start in range(0, len(pcm), length)]
    borders = [DELAY_SAMPLES + length * index for index in range(1, len(parts))]
    clean, _ = decoded(encoded_at_once(pcm, rate, kbits))
    damaged, _ = decoded(encoded_at_once(np.concatenate(damage(parts)), rate, kbits))
    assert worst_band_db(clean, clean, borders) == 0.0
    assert worst_band_db(damaged, clean, borders) > 3 * MOST_DB


@pytest.mark.parametrize(("rate", "kbits"), CASES)
def test_the_test_hears_an_encoder_that_starts_anew(rate: int, kbits: int):
    """As one that keeps no state from chunk to chunk would sound."""
    pcm, length = tone(rate), rate // 5
    joined = b"".join(encoded_at_once(pcm[start : start + length], rate, kbits) for start in range(0, len(pcm), length))
    borders = [DELAY_SAMPLES + length * index for index in range(1, 5)]
    whole, _ = decoded(encoded_at_once(pcm, rate, kbits))
    assert worst_band_db(decoded(joined)[0], whole, borders) > 3 * MOST_DB


def tone(rate: int) -> np.ndarray:
    """[rate] samples: one second of a voice-like buzz in the lower half of the band."""
    t = np.arange(rate) / rate
    return sum(0.25 / k * np.sin(2 * np.pi * 110 * k * t + k) for k in range(1, 12)).astype(np.float32)
