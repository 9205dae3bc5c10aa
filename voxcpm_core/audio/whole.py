"""Formats that come as a whole file: FLAC and Opus, written by libsndfile."""

from __future__ import annotations

import io

import numpy as np
import soundfile

from voxcpm_core.audio.mp3 import DEFAULT_KBITS
from voxcpm_core.audio.pcm import check_finite
from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.types import FloatArray

OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)  # Hz
OPUS_KBITS = (6, 256)  # lowest and highest; libsndfile's compression level runs linearly between them


class WholeFileEncoder:
    """Gathers the samples and writes the file at the end."""

    def __init__(self, sample_rate: int, container: str, subtype: str, compression_level: float | None) -> None:
        self._sample_rate = sample_rate
        self._container, self._subtype = container, subtype
        self._compression_level = compression_level
        self._pcm: list[FloatArray] = []

    def encode(self, pcm: FloatArray) -> bytes:
        check_finite(pcm)
        self._pcm.append(pcm)
        return b""

    def finish(self) -> bytes:
        file = io.BytesIO()
        samples = np.concatenate(self._pcm) if self._pcm else np.zeros(0, np.float32)
        soundfile.write(
            file, samples, self._sample_rate, self._subtype, format=self._container,
            compression_level=self._compression_level,
        )
        return file.getvalue()


def flac_encoder(sample_rate: int) -> WholeFileEncoder:
    """16-bit FLAC."""
    return WholeFileEncoder(sample_rate, "FLAC", "PCM_16", None)


def opus_encoder(sample_rate: int, bitrate: int | None) -> WholeFileEncoder:
    """Opus in Ogg; `bitrate` in kbit/s. Raises INVALID_PARAMETER for a bitrate or rate that Opus lacks."""
    low, high = OPUS_KBITS
    kbits = DEFAULT_KBITS if bitrate is None else bitrate
    if not low <= kbits <= high:
        raise invalid_parameter(f"bitrate: expected {low} to {high} for opus, got {shown(bitrate)}")
    if sample_rate not in OPUS_RATES:
        rates = ", ".join(map(str, OPUS_RATES))
        raise invalid_parameter(f"opus has no sample rate of {sample_rate} Hz; it has {rates}")
    return WholeFileEncoder(sample_rate, "OGG", "OPUS", (high - kbits) / (high - low))
