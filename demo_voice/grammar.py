"""Expands a context-free grammar into sentences."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping

_OPTIONAL = re.compile(r"\[([^]]*)\]")
_SYMBOL = re.compile(r"<([\w.]+)>")
_ARTICLE = re.compile(r"\b([aA]) (?=[aeiouAEIOU])(?!(?:one|once|uni|use|usu|eu|hundred)\w*)")
_AN_HOUR = re.compile(r"\b([aA]) (?=honest|hour)")
_SPACE_BEFORE_MARK = re.compile(r" +(?=[,.?!])")
_START = re.compile(r'^"?[a-z]|(?<= )"[a-z]|(?<=[.?!] )[a-z]')


class Grammar:
    """Alternatives by symbol; words are alternatives too."""

    def __init__(self, lines: Iterable[str], words: Mapping[str, tuple[str, ...]]) -> None:
        """lines: a symbol at the beginning of a line, its alternatives indented below. Raises KeyError for a symbol
        that is used and nowhere defined."""
        rules: dict[str, list[str]] = {}
        alternatives: list[str] = []
        for line in lines:
            if not line.strip():
                continue
            if line[0].isspace():
                alternatives.append(line.strip())
            else:
                alternatives = rules.setdefault(line.strip(), [])
        self._alternatives = {**words, **{symbol: tuple(listed) for symbol, listed in rules.items()}}
        for used in {name for listed in rules.values() for rule in listed for name in _SYMBOL.findall(rule)}:
            self._alternatives[used]
        self.rules: dict[str, tuple[str, ...]] = {symbol: tuple(listed) for symbol, listed in rules.items()}

    def expand(self, symbol: str, rng: random.Random) -> str:
        """A text of that symbol, with a capital at its beginning and "an" where it belongs."""
        text = _SPACE_BEFORE_MARK.sub("", " ".join(self._expanded(symbol, rng).split()))
        text = _AN_HOUR.sub(r"\1n ", _ARTICLE.sub(r"\1n ", text))
        return _START.sub(lambda match: match[0].upper(), text)

    def _expanded(self, symbol: str, rng: random.Random) -> str:
        chosen = rng.choice(self._alternatives[symbol])
        kept = _OPTIONAL.sub(lambda match: match[1] if rng.random() < 0.5 else "", chosen)
        return _SYMBOL.sub(lambda match: self._expanded(match[1], rng), kept)
