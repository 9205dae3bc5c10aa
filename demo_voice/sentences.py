"""Sentences for training, composed of the project's own words and templates."""

from __future__ import annotations

import random
from functools import cache

from demo_voice.grammar import Grammar
from demo_voice.words import data_lines, rare_words, spoken_words, words_by_symbol

MAX_WORDS = 20
_RARE_SHARE, _LIST_SHARE = 0.15, 0.08
_MIN_REPLACED_CHARS = 4
_LIST_WORDS = (3, 12)
_COMMA_SHARE = 0.1


@cache
def grammar() -> Grammar:
    return Grammar(data_lines("sentences.txt"), words_by_symbol())


@cache
def vocabulary() -> tuple[str, ...]:
    """Every word that the templates can give, in lower case, in order."""
    texts = [form for forms in words_by_symbol().values() for form in forms]
    rules = [rule for listed in grammar().rules.values() for rule in listed]
    texts += [word for rule in rules for word in rule.split() if "<" not in word]
    return tuple(sorted({word for text in texts for word in spoken_words(text)}))


def compose(seed: int) -> str:
    """A sentence, the same for the same seed, of at most 20 words; a few greetings are shorter than 3.

    Some have rarer words in the places of others. Some are lists of words without grammar, so that a word is learned
    for itself and not for its neighbours.
    """
    rng = random.Random(f"sentence {seed}")
    share = rng.random()
    if share < _LIST_SHARE:
        return _word_list(rng)
    sentence = grammar().expand("sentence", rng)
    while len(spoken_words(sentence)) > MAX_WORDS:
        sentence = grammar().expand("sentence", rng)
    return _with_rare_words(sentence, rng) if share < _LIST_SHARE + _RARE_SHARE else sentence


def _word_list(rng: random.Random) -> str:
    words = [rng.choice(rng.choice((vocabulary(), rare_words()))) for _ in range(rng.randint(*_LIST_WORDS))]
    text = " ".join(word + "," * (rng.random() < _COMMA_SHARE) for word in words).rstrip(",")
    return text[0].upper() + text[1:] + rng.choice(".?!")


def _with_rare_words(sentence: str, rng: random.Random) -> str:
    words = sentence.split(" ")
    places = [index for index, word in enumerate(words) if len(word) >= _MIN_REPLACED_CHARS and word.isalpha()]
    for index in rng.sample(places, min(len(places), rng.randint(1, 3))):
        rare = rng.choice(rare_words())
        words[index] = rare.capitalize() if words[index][0].isupper() else rare
    return " ".join(words)
