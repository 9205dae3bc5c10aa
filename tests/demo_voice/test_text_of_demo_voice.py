"""Words, templates and the held-out sentences."""

from __future__ import annotations

import random

import pytest

from demo_voice.grammar import Grammar
from demo_voice.held_out import held_out_sentences, training_sentence, word_sequences
from demo_voice.sentences import MAX_WORDS, compose, grammar, vocabulary
from demo_voice.words import rare_words, spoken_words, words_by_symbol

NUM_COMPOSED = 4000


@pytest.fixture(scope="module")
def composed() -> list[str]:
    return [training_sentence(seed) for seed in range(NUM_COMPOSED)]


def test_vocabulary_and_templates_are_rich() -> None:
    assert len(vocabulary()) >= 1500
    assert len(grammar().rules["statement"]) + len(grammar().rules["question"]) >= 40


@pytest.mark.parametrize(("symbol", "word"), [
    ("person.many", "wives"), ("person.many", "babies"), ("thing.many", "brushes"), ("go.past", "hurried"),
    ("go.third", "goes"), ("act.ing", "agreeing"), ("handle.past", "picked up"), ("meet.third", "annoys"),
    ("handle.ing", "putting away"), ("consider.past", "cancelled"), ("claim.done", "sworn"),
])
def test_words_are_inflected(symbol: str, word: str) -> None:
    assert word in words_by_symbol()[symbol]


def test_composition_is_decided_by_the_seed() -> None:
    assert [compose(seed) for seed in range(50)] == [compose(seed) for seed in range(50)]


def test_sentences_are_of_ordinary_length_and_end_with_a_mark(composed: list[str]) -> None:
    lengths = [len(spoken_words(sentence)) for sentence in composed]
    assert max(lengths) <= MAX_WORDS
    assert sum(length >= 3 for length in lengths) > 0.95 * NUM_COMPOSED
    assert all(sentence.rstrip('"')[-1] in ".?!" for sentence in composed)
    assert all(sentence.isascii() and "<" not in sentence and "[" not in sentence for sentence in composed)
    assert all("  " not in sentence and " ," not in sentence and " ." not in sentence for sentence in composed)


def test_sentences_are_varied(composed: list[str]) -> None:
    assert len(set(composed)) > 0.9 * NUM_COMPOSED
    assert sum(sentence.endswith("?") for sentence in composed) > 0.1 * NUM_COMPOSED
    assert sum("," in sentence for sentence in composed) > 0.1 * NUM_COMPOSED
    heard = {word for sentence in composed for word in spoken_words(sentence)}
    assert len(heard & set(vocabulary())) > 0.8 * len(vocabulary())
    assert len(heard & set(rare_words()) - set(vocabulary())) > 1000


def test_held_out_sentences_are_ordinary() -> None:
    sentences = held_out_sentences()
    assert len(set(sentences)) == 200
    assert all(3 <= len(spoken_words(sentence)) <= 20 for sentence in sentences)
    known = set(vocabulary())
    assert [word for sentence in sentences for word in spoken_words(sentence) if word not in known] == []


def test_training_shares_no_four_words_with_the_held_out_sentences(composed: list[str]) -> None:
    held_out = set().union(*map(word_sequences, held_out_sentences()))
    assert all(word_sequences(sentence).isdisjoint(held_out) for sentence in composed)


def test_a_sentence_that_shares_four_words_is_composed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = f"They said: {held_out_sentences()[0].upper()}"
    assert word_sequences(copied) & word_sequences(held_out_sentences()[0])
    monkeypatch.setattr("demo_voice.held_out.compose", lambda seed: "Fine." if seed % 10 == 3 else copied)
    assert training_sentence(5) == "Fine."


def test_spoken_words_have_neither_case_nor_marks() -> None:
    assert spoken_words('"Don\'t," said Mary\'s 2 friends!') == ["don't", "said", "mary's", "2", "friends"]


def test_grammar_puts_capitals_and_articles() -> None:
    words = {"fruit": ("apple",)}
    made = Grammar(["s", '  he said, "a <fruit>" [,].', "t", "  a uniform and a <fruit>!"], words)
    assert made.expand("s", random.Random(1)) in {'He said, "An apple",.', 'He said, "An apple".'}
    assert made.expand("t", random.Random(1)) == "A uniform and an apple!"


def test_grammar_refuses_a_symbol_that_is_nowhere_defined() -> None:
    with pytest.raises(KeyError, match="fruit"):
        Grammar(["s", "  a <fruit>"], {})
