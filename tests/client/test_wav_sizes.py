"""Sizes of streamed wav headers."""

from __future__ import annotations

import io
import struct
import wave

from voxcpm_client.wav import with_exact_sizes

PCM = struct.pack("<5h", 1, -2, 3, -4, 5)


def _wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 16000, 0, "NONE", ""))
        writer.writeframes(PCM)
    return file.getvalue()


def test_unknown_sizes_are_filled_in() -> None:
    exact = _wav()
    streamed = exact[:4] + b"\xff" * 4 + exact[8:40] + b"\xff" * 4 + exact[44:]
    assert with_exact_sizes(streamed) == exact


def test_exact_sizes_stay() -> None:
    assert with_exact_sizes(_wav()) == _wav()


def test_other_bytes_stay() -> None:
    assert with_exact_sizes(b"not a wav file at all, but data in it") == b"not a wav file at all, but data in it"
    assert with_exact_sizes(b"") == b""
