"""The measurement itself: figures, and a checkpoint with random weights that fails it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from demo_voice.evaluate import evaluate, table
from demo_voice.evaluate_cloning import correlation
from demo_voice.evaluate_speech import Spoken, encode, source_speech, synthesise_all, to_pcm
from demo_voice.evaluate_text import errors_json, shuffled_words
from demo_voice.held_out import held_out_sentences
from demo_voice.lengths import Lengths, compare_lengths
from demo_voice.recognise import recognise, recognise_all, word_errors
from demo_voice.words import spoken_words
from tests.demo_voice.clips import TEXTS, clip
from tests.demo_voice.needs_flite import needs_flite
from voxcpm_core import VoxCPM
from voxcpm_core.checkpoint.random_init import make_checkpoint

has_matplotlib = importlib.util.find_spec("matplotlib") is not None


@pytest.fixture(scope="module")
def random_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    make_checkpoint(folder, "noise")
    return folder


def test_random_weights_are_not_understood(random_checkpoint: Path) -> None:
    text, source = TEXTS["kal16"], clip("kal16")
    with VoxCPM.from_pretrained(str(random_checkpoint), devices=["cpu"]) as pool:
        latents = encode(pool, source, "reference")
        made = synthesise_all(pool, [Spoken(text, 1, source), Spoken(text, 1, source, reference=latents)])
    assert len(latents) % (4 * 16 * 4) == 0
    assert all(pcm.dtype == np.int16 and len(pcm) > 0 for pcm in made)
    assert word_errors(text, recognise(made[0])).rate > 0.9


@needs_flite
@pytest.mark.soak
def test_random_weights_fail_the_whole_measurement(random_checkpoint: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    results = evaluate(str(random_checkpoint), count=1, num_processes=2, picture=picture if has_matplotlib else None)
    assert results["sentences"]["source"]["word_error_rate"] < 0.2
    assert results["sentences"]["points_above_source"] > 70
    assert results["sentences"]["lengths"]["share_within_25_percent"] < 0.95
    assert results["shuffled"]["as_shuffled"]["word_error_rate"] > 0.8
    assert abs(results["cloning"]["reference"]["f0_correlation"]) < 0.9
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert "points above the source" in table(results)
    assert picture.exists() == has_matplotlib


@needs_flite
def test_the_source_measured_against_itself_passes() -> None:
    texts = held_out_sentences()[:1]
    assert errors_json(texts, recognise_all(source_speech(texts)))["word_error_rate"] < 0.3


@pytest.mark.skipif(not has_matplotlib, reason="matplotlib is not installed (the extra `voice`)")
def test_a_tone_is_one_band_of_the_picture(tmp_path: Path) -> None:
    from demo_voice.picture import draw, mel_db

    tone = (8000 * np.sin(np.arange(16000) * 2 * np.pi * 440 / 16000)).astype(np.int16)
    decibels = mel_db(tone)
    loud_bands = np.flatnonzero(decibels[:, 60] > -20)
    assert 1 <= len(loud_bands) <= 5
    draw(tmp_path / "tone.png", "A tone.", tone, tone[:8000])
    assert (tmp_path / "tone.png").read_bytes().startswith(b"\x89PNG")


def test_lengths_tell_runaways_and_early_stops() -> None:
    assert compare_lengths([1.0, 2.4, 3.0, 1.0], [1.0, 2.0, 1.5, 2.0]) == Lengths(0.5, 1, 1, pytest.approx(1.1))


def test_correlation_follows_and_misses() -> None:
    assert correlation([80, 120, 200], [82, 118, 210]) > 0.99
    assert correlation([80, 120, 200], [200, 120, 80]) < -0.9
    assert correlation([80, 120, 200], [100, 100, 100]) == 0
    assert correlation([80, 120, 200], [82, 0, 210]) == 0


def test_shuffling_keeps_the_words_and_not_their_order() -> None:
    for text in held_out_sentences():
        words, shuffled = spoken_words(text), spoken_words(shuffled_words(text))
        assert sorted(words) == sorted(shuffled)
        assert shuffled_words(text) == shuffled_words(text)
    assert sum(spoken_words(text) != spoken_words(shuffled_words(text)) for text in held_out_sentences()) > 190


def test_audio_at_another_rate_is_brought_to_the_recognisers() -> None:
    tone = np.sin(np.arange(48000) * 2 * np.pi * 440 / 48000).astype(np.float32)
    pcm = to_pcm(tone, 48000)
    assert pcm.dtype == np.int16
    assert len(pcm) == 16000
    assert np.argmax(np.abs(np.fft.rfft(pcm))) == 440
