"""Cleaning of the target text before it is tokenised."""

from __future__ import annotations

import re

_WHITESPACE = re.compile(r"\s{2,}|[^\S ]")  # leaves single spaces alone, which a long text has many of


def clean_text(text: str) -> str:
    """Each run of whitespace, line ends included, becomes one space, as in the official package."""
    return _WHITESPACE.sub(" ", text)
