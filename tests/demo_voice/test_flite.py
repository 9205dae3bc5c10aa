"""Source speech: pitch, tempo, level and edges."""

from __future__ import annotations

import numpy as np
import pytest

from demo_voice.flite import PATCH_SAMPLES, SAMPLE_RATE_HZ, FliteError, flite_command, say, speech_span
from demo_voice.pitch import f0_hz, median_f0_hz
from demo_voice.speakers import DEFAULT_SPEAKER, GIANT, SPEAKERS, VOICES, Speaker
from tests.demo_voice.needs_flite import needs_flite

TEXT = "The farmer sells honey at the market."


@needs_flite
@pytest.mark.parametrize("voice", VOICES)
def test_scale_moves_the_pitch_and_leaves_the_tempo(voice: str) -> None:
    deep, plain, high = (say(TEXT, Speaker(voice, scale), 1.0) for scale in (0.88, 1.0, 1.13))
    pitches_hz = [median_f0_hz(pcm, SAMPLE_RATE_HZ) for pcm in (deep, plain, high)]
    assert pitches_hz[0] / pitches_hz[1] == pytest.approx(0.88, abs=0.05)
    assert pitches_hz[2] / pitches_hz[1] == pytest.approx(1.13, abs=0.05)
    assert max(map(_spoken_s, (deep, plain, high))) < 1.06 * min(map(_spoken_s, (deep, plain, high)))


@needs_flite
@pytest.mark.parametrize("voice", VOICES)
def test_tempo_changes_the_duration_and_leaves_the_pitch(voice: str) -> None:
    plain, slow = say(TEXT, Speaker(voice), 1.0), say(TEXT, Speaker(voice), 1.2)
    assert _spoken_s(slow) / _spoken_s(plain) == pytest.approx(1.2, abs=0.06)
    assert median_f0_hz(slow, SAMPLE_RATE_HZ) == pytest.approx(median_f0_hz(plain, SAMPLE_RATE_HZ), rel=0.05)


@needs_flite
def test_the_giant_is_flat_and_deep_and_not_in_the_corpus() -> None:
    giant, plain = (f0_hz(say(TEXT, speaker, 1.0), SAMPLE_RATE_HZ) for speaker in (GIANT, Speaker(GIANT.voice)))
    assert np.median(giant) < 0.85 * np.median(plain)
    assert _spread(giant) < 0.6 * _spread(plain)
    assert GIANT not in SPEAKERS


@needs_flite
def test_edges_level_and_length() -> None:
    pcm = say(TEXT, DEFAULT_SPEAKER, 1.0)
    assert pcm.dtype == np.int16
    assert len(pcm) % PATCH_SAMPLES == 0
    assert np.abs(pcm).max() == round(0.7 * 32767)
    begin, end = speech_span(pcm)
    assert begin == pytest.approx(0.06 * SAMPLE_RATE_HZ, abs=160)
    assert 0.07 * SAMPLE_RATE_HZ < len(pcm) - end < 0.09 * SAMPLE_RATE_HZ + PATCH_SAMPLES


@needs_flite
def test_text_without_speech_is_an_error() -> None:
    with pytest.raises(FliteError):
        say(" ", DEFAULT_SPEAKER, 1.0)


def test_without_flite_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLITE", "/nowhere/flite")
    flite_command.cache_clear()
    try:
        with pytest.raises(FliteError, match="apt-get install flite"):
            flite_command()
    finally:
        flite_command.cache_clear()


@pytest.mark.parametrize("pitch_hz", [80.0, 125.0, 220.0, 320.0])
def test_pitch_of_a_tone_with_harmonics(pitch_hz: float) -> None:
    time_s = np.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    tone = sum(np.sin(2 * np.pi * pitch_hz * harmonic * time_s) / harmonic for harmonic in range(1, 6))
    assert median_f0_hz(tone, SAMPLE_RATE_HZ) == pytest.approx(pitch_hz, rel=0.03)


def test_noise_has_no_pitch() -> None:
    noise = np.random.default_rng(1).normal(size=SAMPLE_RATE_HZ)
    assert len(f0_hz(noise, SAMPLE_RATE_HZ)) < 5


def _spoken_s(pcm: np.ndarray) -> float:
    begin, end = speech_span(pcm)
    return (end - begin) / SAMPLE_RATE_HZ


def _spread(values: np.ndarray) -> float:
    quarter, three_quarters = np.percentile(values, [25, 75])
    return (three_quarters - quarter) / np.median(values)
