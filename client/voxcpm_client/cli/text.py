"""Text from a file or from standard input, as it comes."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from voxcpm_client.errors import InvalidText

STANDARD_INPUT = "-"
_READ_BYTES = 4096


def pieces_of(source: Path | str) -> Iterator[str]:
    """The text of a file, or of standard input, piece by piece. Raises OSError, and InvalidText unless it is UTF-8."""
    if str(source) == STANDARD_INPUT:
        yield from _decoded(sys.stdin.buffer)
    else:
        with Path(source).open("rb") as file:
            yield from _decoded(file)


def _decoded(file: BinaryIO) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        while piece := file.read1(_READ_BYTES):  # type: ignore[attr-defined]
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise InvalidText("the text is not UTF-8") from None
