"""The vocabulary that sentences are composed of, with its inflected forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_VERB_FORMS = ("base", "third", "past", "done", "ing")
_HEADER = re.compile(r"\[(noun|verb|word) (\w+)\]")
_SPOKEN = re.compile(r"[a-z0-9]+(?:'[a-z]+)*")
_VOWELS = "aeiou"


def data_lines(name: str) -> list[str]:
    """Lines of a data file beside this module, without comments."""
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def spoken_words(text: str) -> list[str]:
    """The words of a text, in lower case and without punctuation."""
    return _SPOKEN.findall(text.lower().replace("’", "'"))


@cache
def words_by_symbol() -> dict[str, tuple[str, ...]]:
    """Words under the names that the grammar has for them: `person.one`, `person.many`, `go.past`, `color`."""
    kinds: dict[tuple[str, str], list[str]] = {}
    entries: list[str] = []
    for line in data_lines("words.txt"):
        if header := _HEADER.fullmatch(line):
            entries = kinds.setdefault((header[1], header[2]), [])
        else:
            entries += [entry.strip() for entry in line.split(",") if entry.strip()]
    return {
        symbol: forms
        for (part, kind), listed in kinds.items()
        for symbol, forms in _inflected(part, kind, listed)
    }


@cache
def rare_words() -> tuple[str, ...]:
    """Words of everyday news and books, from the most frequent to the rarer ones."""
    return tuple(" ".join(data_lines("rare_words.txt")).split())


def _inflected(part: str, kind: str, entries: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if part == "word":
        yield kind, tuple(entries)
        return
    form_names = ("one", "many") if part == "noun" else _VERB_FORMS
    inflect = _noun_forms if part == "noun" else _verb_forms
    rows = [tuple(entry.split("/")) if "/" in entry else inflect(entry) for entry in entries]
    assert all(len(row) == len(form_names) for row in rows), kind
    for index, name in enumerate(form_names):
        yield f"{kind}.{name}", tuple(row[index] for row in rows)


def _noun_forms(noun: str) -> tuple[str, str]:
    return noun, _with_s(noun)


def _verb_forms(verb: str) -> tuple[str, ...]:
    word, _, particle = verb.partition(" ")
    stem = word[:-1] if word.endswith("e") else word
    past = f"{word[:-1]}ied" if _ends_in_consonant_y(word) else f"{stem}ed"
    ing = f"{word if word.endswith('ee') else stem}ing"
    return tuple(f"{form} {particle}".strip() for form in (word, _with_s(word), past, past, ing))


def _with_s(word: str) -> str:
    if _ends_in_consonant_y(word):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"


def _ends_in_consonant_y(word: str) -> bool:
    return word.endswith("y") and word[-2] not in _VOWELS
