"""The corpus: deterministic, in complete shards."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from demo_voice import corpus
from demo_voice.corpus import Utterance, make_corpus, read_shards, shard_paths
from demo_voice.held_out import training_sentence
from demo_voice.speakers import DEFAULT_SPEAKER, GIANT, SPEAKER_BY_NAME, SPEAKERS, TEMPOS, choose, style
from tests.demo_voice.needs_flite import needs_flite


def as_values(utterances: list[Utterance]) -> list[tuple[str, str, str, float, bytes, list[int]]]:
    return [
        (each.text, each.speaker, each.style, each.tempo, each.pcm.tobytes(), each.phones.tolist())
        for each in utterances
    ]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "SHARD_UTTERANCES", 3)


@needs_flite
@pytest.mark.usefixtures("small_shards")
def test_the_corpus_is_the_same_whatever_the_number_of_processes(tmp_path: Path) -> None:
    hours = 6 * 2.7 / 3600
    made_hours = make_corpus(tmp_path / "one", hours, num_processes=1, seed=3)
    make_corpus(tmp_path / "two", hours, num_processes=2, seed=3)
    one, two = (as_values(list(read_shards(tmp_path / name))) for name in ("one", "two"))
    assert len(one) == 6
    assert one == two
    assert made_hours == pytest.approx(sum(len(pcm) / 2 for *_, pcm, _ in one) / 16000 / 3600)
    assert {speaker for _, speaker, *_ in one} <= {speaker.name for speaker in SPEAKERS}


@needs_flite
@pytest.mark.usefixtures("small_shards")
def test_a_corpus_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    make_corpus(tmp_path, 6 * 2.7 / 3600, num_processes=1, seed=3)
    before = as_values(list(read_shards(tmp_path)))
    shard_paths(tmp_path)[1].unlink()
    kept_ns = shard_paths(tmp_path)[0].stat().st_mtime_ns
    make_corpus(tmp_path, 6 * 2.7 / 3600, num_processes=1, seed=3)
    assert shard_paths(tmp_path)[0].stat().st_mtime_ns == kept_ns
    assert as_values(list(read_shards(tmp_path))) == before


@needs_flite
@pytest.mark.usefixtures("small_shards")
def test_a_sentence_that_cannot_be_said_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "training_sentence", lambda seed: "..." if seed % 3 == 1 else f"Number {seed % 3}.")
    make_corpus(tmp_path, 3 * 2.7 / 3600, num_processes=1, seed=3)
    assert sorted(each.text for each in read_shards(tmp_path)) == ["Number 0.", "Number 2."]


@needs_flite
@pytest.mark.usefixtures("small_shards")
def test_one_speaker_alone(tmp_path: Path) -> None:
    make_corpus(tmp_path, 3 * 2.7 / 3600, num_processes=1, seed=3, speaker=GIANT)
    assert {(each.speaker, each.tempo) for each in read_shards(tmp_path)} == {(GIANT.name, 1.0)}


def test_a_shard_gives_back_what_was_written(tmp_path: Path) -> None:
    written = [
        Utterance(
            text=training_sentence(seed),
            speaker="slt-1.00",
            style="a woman",
            tempo=1.2,
            pcm=np.full(2560 * (seed + 1), seed, np.int16),
            phones=np.arange(seed, 9 * seed + 8).astype(np.uint8),
        )
        for seed in range(3)
    ]
    corpus._write(tmp_path / "shard-0000.npz", written)
    assert [path.name for path in tmp_path.iterdir()] == ["shard-0000.npz"]
    assert as_values(list(read_shards(tmp_path))) == as_values(written)


def test_the_default_speaker_comes_most_often_and_all_others_come() -> None:
    rng = random.Random(1)
    chosen = [choose(rng) for _ in range(3000)]
    assert set(chosen) == {(speaker, tempo) for speaker in SPEAKERS for tempo in TEMPOS}
    assert 0.3 < chosen.count((DEFAULT_SPEAKER, 1.0)) / len(chosen) < 0.42


def test_styles_name_voice_pitch_and_tempo() -> None:
    rng = random.Random(1)
    deep_slow = {style(SPEAKER_BY_NAME["rms-0.88"], 1.2, rng) for _ in range(100)}
    assert "a deep man, slow" in deep_slow
    assert all({"deep", "man", "slow"} <= set(text.replace(",", "").split()) for text in deep_slow)
    plain = {style(DEFAULT_SPEAKER, 1.0, rng) for _ in range(100)}
    assert plain == {"a man", "man"}
    assert "a Scottish man" in {style(SPEAKER_BY_NAME["awb-1.00"], 1.0, rng) for _ in range(100)}
