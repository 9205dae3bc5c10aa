"""Splitting text at sentence ends while it arrives.

Every decision looks at a bounded stretch of the text behind it, so that the sentences of a text do not depend on the
pieces in which it came, and no more text is waited for than the decision needs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from voxcpm_client.passage.abbreviations import stands_for_more
from voxcpm_client.passage.width import is_wide

_MIN_CHARS = 20  # shorter sentences are spoken together with the next one; wide characters count three times
_LOOKAHEAD_CHARS = 64  # of whitespace behind a sentence, in search of the next word
_LONGEST_ASIDE_CHARS = 120  # a parenthesis that stays open for longer does not hold sentences together

_WIDE_ENDS = "。！？．｡।॥۔؟"  # end a sentence whatever follows
_NARROW_ENDS = ".!?…"  # end one before whitespace and a word that does not begin in lower case
_CLOSERS = "\"'”’»›)]}）］」』】》〉*_"
_MARK = re.compile(f"[\n()（）{_WIDE_ENDS}{_NARROW_ENDS}]")
_RUN = frozenset(_WIDE_ENDS + _NARROW_ENDS + _CLOSERS)
_WIDE_PAUSES = "，、；：—"
_NARROW_PAUSES = ",;:"
_JOINERS = "\u200d\ufe0f"
_PARENTHESIS = re.compile(r"[(（][^()（）]*[)）]")


class SentenceSplitter:
    """Takes text in any pieces and gives back sentences, which joined are the text again.

    A sentence keeps the whitespace before it. It has at most `max_chars` characters, the first one `first_max_chars`:
    where no sentence ends within, it is cut behind a comma, else before a space, else anywhere. Short sentences come
    together with the next; the first comes as soon as it ends.
    """

    def __init__(self, max_chars: int, first_max_chars: int) -> None:
        self._max_chars = max_chars
        self._limit = min(first_max_chars, max_chars)
        self._min_chars = 1
        self._text = ""

    def feed(self, piece: str) -> list[str]:
        """The sentences that are complete once `piece` has come."""
        self._text += piece
        return list(self._take(is_whole=False))

    def finish(self) -> list[str]:
        """The rest, when no more text will come; the last may be blank."""
        sentences = list(self._take(is_whole=True))
        rest, self._text = self._text, ""
        return [*sentences, rest] if rest else sentences

    def _take(self, is_whole: bool) -> Iterator[str]:
        start = 0
        while start < len(self._text):
            window = self._text[start : start + self._limit + _LOOKAHEAD_CHARS + 1]
            is_all = is_whole and start + len(window) == len(self._text)
            end = _next_end(window, self._limit, self._min_chars, is_all)
            if end is None:
                break
            sentence = window[:end]
            start += end
            yield sentence
            if sentence.strip():
                self._limit, self._min_chars = self._max_chars, _MIN_CHARS
        self._text = self._text[start:]


def _next_end(text: str, limit: int, min_chars: int, is_all: bool) -> int | None:
    """Where the first sentence of `text` ends; None when that is not within it, or when only later text can tell."""
    opened_at: int | None = None
    end = 0
    while found := _MARK.search(text, end, limit):
        position = found.start()
        is_line = text[position] == "\n"
        end = position + 1 if is_line else _end_of_run(text, position, limit)
        is_end = _line_ends(text, end, is_all) if is_line else _sentence_ends(text, position, end, is_all)
        if is_end is None:
            return None
        if is_line and is_end and text[:position].strip():
            return position
        opened_at = _opened_at(text, position, end, opened_at)
        is_aside = opened_at is not None and end - opened_at <= _LONGEST_ASIDE_CHARS
        if is_end and not is_line and not is_aside and _is_enough(text[:end].strip(), min_chars):
            return end
    return _forced_end(text, limit) if len(text) > limit else None


def _end_of_run(text: str, position: int, limit: int) -> int:
    """The end of the sentence ends and closing marks that begin at `position`; of one character where none does."""
    end = position + 1
    if text[position] in _WIDE_ENDS + _NARROW_ENDS:
        while end < min(limit, len(text)) and text[end] in _RUN:
            end += 1
    return end


def _sentence_ends(text: str, position: int, end: int, is_all: bool) -> bool | None:
    """Whether a sentence ends with `text[position:end]`; None when only later text can tell."""
    if text[position] not in _WIDE_ENDS + _NARROW_ENDS:
        return False
    if end == len(text):
        return True if is_all else None
    if text[end] in _RUN or any(char in _WIDE_ENDS for char in text[position:end]):
        return True
    if not text[end].isspace():
        return is_wide(text[end])
    following = _next_visible(text, end)
    if following is None:
        return True if is_all else None
    is_abbreviated = text[position:end] == "." and stands_for_more(text[:position], following)
    return not following.islower() and not is_abbreviated


def _line_ends(text: str, start: int, is_all: bool) -> bool | None:
    """Whether the line break before `start` ends a sentence: not where a paragraph was wrapped inside a sentence."""
    following = _next_visible(text, start)
    if "\n" in text[start : start + _LOOKAHEAD_CHARS].partition(following or "\0")[0]:
        return True
    if following is None:
        return True if is_all else None
    return not following.islower()


def _next_visible(text: str, start: int) -> str | None:
    """The first character that is no whitespace; "" when none is near, None when `text` ends before."""
    near = text[start : start + _LOOKAHEAD_CHARS]
    return near.lstrip()[:1] if near.strip() or len(near) == _LOOKAHEAD_CHARS else None


def _opened_at(text: str, start: int, end: int, opened_at: int | None) -> int | None:
    """Where the parenthesis that is open at `end` began."""
    for position in range(start, end):
        if text[position] in "(（":
            opened_at = position
        elif text[position] in ")）":
            opened_at = None
    return opened_at


def _forced_end(text: str, limit: int) -> int:
    """Where to cut a text of more than `limit` characters in which no sentence ends."""
    for end in range(limit, limit // 3, -1):
        before = text[end - 1]
        if before in _WIDE_PAUSES or (before in _NARROW_PAUSES and text[end].isspace()):
            return end
    for end in range(limit, 0, -1):
        if text[end].isspace() and text[:end].strip():
            return end
    end = limit
    while end > 1 and (unicodedata.combining(text[end]) or text[end] in _JOINERS or text[end - 1] in _JOINERS):
        end -= 1
    return end


def _is_enough(sentence: str, min_chars: int) -> bool:
    """Whether a sentence may be spoken by itself: a parenthesis alone would be taken for a style without a text."""
    return len(sentence) + 2 * sum(map(is_wide, sentence)) >= min_chars and not _PARENTHESIS.fullmatch(sentence)
