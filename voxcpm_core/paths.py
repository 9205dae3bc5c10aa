"""Names of files as text, which is UTF-8, in a Python that may take the file system for ASCII, as Triton's stub does.

There `os.environ` and the file system give half a character for each byte that is not ASCII, and take no other text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_OTHER_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # of characters, that stand for no byte


def as_path(text: str) -> Path:
    """The path that `text` names, as this process can hand it to the file system."""
    return Path(os.fsdecode(text.encode("utf-8", "surrogateescape")))


def as_text(given: str | Path) -> str:
    """What `os.environ` or the file system gave, as it reads; half a character is left for a byte that is not UTF-8."""
    return os.fsencode(given).decode("utf-8", "surrogateescape")


def printable(message: str) -> str:
    """A message that Triton can take: one with half a character in it, as of a path, kills the stub."""
    whole = _OTHER_HALVES.sub("\ufffd", message)
    return whole.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
