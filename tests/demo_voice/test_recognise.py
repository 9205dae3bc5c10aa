"""The recogniser hears what is said, in the order in which it is said, and nothing in noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_voice.errors_of_words import WordErrors, count_errors, total
from demo_voice.evaluate_text import shuffled_words
from demo_voice.recognise import recognise, recognise_all, word_errors
from tests.demo_voice.clips import TEXTS, clip

WORDS = st.lists(st.sampled_from("abcd"), max_size=7)


@pytest.mark.parametrize("name", TEXTS)
def test_source_speech_is_understood(name: str) -> None:
    assert word_errors(TEXTS[name], recognise(clip(name))).rate == 0


def test_shuffled_words_are_heard_shuffled() -> None:
    heard = recognise(clip("rms_shuffled"))
    as_shuffled, in_order = word_errors(shuffled_words(TEXTS["rms"]), heard), word_errors(TEXTS["rms"], heard)
    assert as_shuffled.rate < 0.7
    assert in_order.rate > as_shuffled.rate + 0.3


def test_noise_is_not_understood() -> None:
    pcm = clip("kal16")
    noise = np.random.default_rng(1).normal(scale=3000, size=len(pcm)).astype(np.int16)
    assert word_errors(TEXTS["kal16"], recognise(noise)).rate > 0.9


def test_what_was_heard_before_changes_nothing() -> None:
    after_others = recognise(clip("rms_shuffled"))
    assert recognise_all([clip("rms_shuffled")]) == [after_others]  # in a process that has heard nothing else


@pytest.mark.parametrize(("said", "heard", "expected"), [
    ("a b c", "a b c", WordErrors(3)),
    ("a b c", "", WordErrors(3, num_deletions=3)),
    ("", "a", WordErrors(0, num_insertions=1)),
    ("a b c d", "a x c", WordErrors(4, num_substitutions=1, num_deletions=1)),
    ("a b", "a x y b", WordErrors(2, num_insertions=2)),
])
def test_errors_are_counted_by_kind(said: str, heard: str, expected: WordErrors) -> None:
    assert count_errors(said.split(), heard.split()) == expected


@given(WORDS, WORDS)
def test_errors_balance(said: list[str], heard: list[str]) -> None:
    errors, reverse = count_errors(said, heard), count_errors(heard, said)
    assert len(heard) - len(said) == errors.num_insertions - errors.num_deletions
    assert errors.num_errors == reverse.num_errors
    assert abs(len(said) - len(heard)) <= errors.num_errors <= max(len(said), len(heard))
    assert (errors.num_errors == 0) == (said == heard)


def test_a_total_weighs_sentences_by_their_words() -> None:
    assert total([WordErrors(9), WordErrors(1, num_substitutions=1)]).rate == pytest.approx(0.1)
