"""The sentences that the voice is measured on, and training sentences that have nothing to do with them."""

from __future__ import annotations

from functools import cache
from itertools import count

from demo_voice.sentences import compose
from demo_voice.words import data_lines, spoken_words

_SEQUENCE_WORDS = 4
_SEEDS_PER_SENTENCE = 1000


@cache
def held_out_sentences() -> tuple[str, ...]:
    """200 ordinary English sentences of 3 to 20 words."""
    return tuple(data_lines("held_out.txt"))


def word_sequences(text: str) -> set[tuple[str, ...]]:
    """Every four words that follow each other in a text, in lower case and without punctuation."""
    words = spoken_words(text)
    return {tuple(words[start : start + _SEQUENCE_WORDS]) for start in range(len(words) - _SEQUENCE_WORDS + 1)}


def training_sentence(seed: int) -> str:
    """A composed sentence that shares no four-word sequence with the held-out ones; the same for the same seed."""
    for attempt in count():
        sentence = compose(seed * _SEEDS_PER_SENTENCE + attempt)
        if word_sequences(sentence).isdisjoint(_held_out_sequences()):
            return sentence
    raise AssertionError("count() does not end")


@cache
def _held_out_sequences() -> frozenset[tuple[str, ...]]:
    return frozenset().union(*map(word_sequences, held_out_sentences()))
