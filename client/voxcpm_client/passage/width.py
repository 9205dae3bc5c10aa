"""Characters that fill a square, as those of Chinese, Japanese and Korean."""

from __future__ import annotations

import unicodedata


def is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in ("W", "F")
