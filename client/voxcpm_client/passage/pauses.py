"""How long speech pauses between two sentences."""

from __future__ import annotations

_PARAGRAPH_MS, _SENTENCE_MS, _CLAUSE_MS = 400, 250, 120
_CLAUSE_ENDS = ",;:，、；：—"


def pause_ms(before: str, after: str) -> int:
    """The silence between `before` and `after`, which follows it in a text; none where a sentence was cut."""
    between = after[: len(after) - len(after.lstrip())]
    if "\n" in between:
        return _PARAGRAPH_MS
    last = before.rstrip()[-1:]
    if last in _CLAUSE_ENDS:
        return _CLAUSE_MS
    return 0 if last.isalnum() else _SENTENCE_MS
