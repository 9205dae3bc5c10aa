"""A streamed wav header cannot know its sizes; once the stream has ended they can be filled in."""

from __future__ import annotations

import io
import struct
from typing import BinaryIO

_UNKNOWN = 0xFFFFFFFF
_RIFF_SIZE_AT = 4
_HEADER_BYTES = 4096  # the data chunk's header lies within


def wav_header(sample_rate: int) -> bytes:
    """The header of a stream of 16-bit mono samples, with unknown sizes."""
    layout = (1, 1, sample_rate, 2 * sample_rate, 2, 16)
    return (
        struct.pack("<4sI4s4sI", b"RIFF", _UNKNOWN, b"WAVE", b"fmt ", 16)
        + struct.pack("<HHIIHH", *layout)
        + struct.pack("<4sI", b"data", _UNKNOWN)
    )


def fill_in_sizes(file: BinaryIO) -> None:
    """Replace the unknown sizes of the wav file in `file`, opened for reading and writing; exact ones stay."""
    file.seek(0)
    head = file.read(_HEADER_BYTES)
    total = file.seek(0, io.SEEK_END)
    data_size_at = head.find(b"data", 12) + 4
    if head[:4] != b"RIFF" or data_size_at < 12 or struct.unpack_from("<I", head, data_size_at)[0] != _UNKNOWN:
        return
    for position in (_RIFF_SIZE_AT, data_size_at):
        file.seek(position)
        file.write(struct.pack("<I", total - position - 4))
    file.seek(0, io.SEEK_END)


def with_exact_sizes(audio: bytes) -> bytes:
    """`audio`, a whole wav stream, with exact sizes in its header."""
    file = io.BytesIO(audio)
    fill_in_sizes(file)
    return file.getvalue()
