"""Float samples to 16-bit PCM, and the encoder of the raw format."""

from __future__ import annotations

import numpy as np

from voxcpm_core.types import FloatArray


def to_int16_bytes(pcm: FloatArray) -> bytes:
    """Round [n] samples in [-1, 1] to little-endian 16-bit, clipping what lies outside."""
    assert np.isfinite(pcm).all()  # the engine's promise; rounding would turn a NaN into silence or a click
    samples = np.clip(np.rint(pcm * np.float32(32767)), -32768, 32767)
    return bytes(samples.astype("<i2").data)


class PcmEncoder:
    """`pcm_s16le`: samples only."""

    def encode(self, pcm: FloatArray) -> bytes:
        return to_int16_bytes(pcm)

    def finish(self) -> bytes:
        return b""
