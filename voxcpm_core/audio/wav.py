"""16-bit mono WAV, streamed or whole."""

from __future__ import annotations

import struct

from voxcpm_core.audio.pcm import to_int16_bytes
from voxcpm_core.types import FloatArray

_UNKNOWN_SIZE = 0xFFFFFFFF
_SIZE_AROUND_DATA = 36  # of the header, after the RIFF size


def wav_header(sample_rate: int, num_data_bytes: int | None) -> bytes:
    """The 44 bytes before the samples; None: a stream of unknown length."""
    riff_size = _UNKNOWN_SIZE if num_data_bytes is None else _SIZE_AROUND_DATA + num_data_bytes
    data_size = _UNKNOWN_SIZE if num_data_bytes is None else num_data_bytes
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", riff_size, b"WAVE", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16, b"data", data_size,
    )


class StreamingWavEncoder:
    """The header travels with the first samples and leaves the length open."""

    def __init__(self, sample_rate: int) -> None:
        self._header = wav_header(sample_rate, None)

    def encode(self, pcm: FloatArray) -> bytes:
        header, self._header = self._header, b""
        return header + to_int16_bytes(pcm)

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header


class WholeWavEncoder:
    """The file comes at the end, with exact sizes."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._data: list[bytes] = []

    def encode(self, pcm: FloatArray) -> bytes:
        self._data.append(to_int16_bytes(pcm))
        return b""

    def finish(self) -> bytes:
        data = b"".join(self._data)
        return wav_header(self._sample_rate, len(data)) + data
