"""Sentences of a text that arrives, with the pauses before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from voxcpm_client.errors import InvalidParameter
from voxcpm_client.passage.pauses import pause_ms
from voxcpm_client.passage.sentences import SentenceSplitter

MIN_CHARS = 20


@dataclass(frozen=True)
class Sentence:
    text: str
    pause_ms: int  # before it


class ArrivingText:
    """A splitter that leaves out what cannot be spoken, as a line of dashes."""

    def __init__(self, max_chars: int, first_max_chars: int) -> None:
        """Raises InvalidParameter for bounds that no sentence would fit."""
        for name, value in (("max_chars", max_chars), ("first_max_chars", first_max_chars)):
            if value < MIN_CHARS:
                raise InvalidParameter(f"{name}: expected at least {MIN_CHARS}, got {value!r}")
        self._splitter = SentenceSplitter(max_chars, first_max_chars)
        self._before = ""

    def feed(self, piece: str) -> Iterator[Sentence]:
        """The sentences that are complete once `piece` has come."""
        if not isinstance(piece, str):
            raise TypeError(f"the text: expected str, got {type(piece).__name__}")
        return self._spoken(self._splitter.feed(piece))

    def finish(self) -> Iterator[Sentence]:
        """The rest, when no more text will come."""
        return self._spoken(self._splitter.finish())

    def _spoken(self, texts: Iterable[str]) -> Iterator[Sentence]:
        for text in texts:
            if any(char.isalnum() for char in text):
                yield Sentence(text, pause_ms(self._before, text))
            self._before = text if text.strip() else self._before + text
