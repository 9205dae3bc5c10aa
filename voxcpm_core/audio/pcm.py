"""Float samples to 16-bit PCM, and the encoder of the raw format."""

from __future__ import annotations

import numpy as np

from voxcpm_core.types import FloatArray


def check_finite(pcm: FloatArray) -> None:
    """The engine promises finite samples; rounding would turn a NaN into silence or a click."""
    assert np.isfinite(pcm).all()


def to_int16_bytes(pcm: FloatArray) -> bytes:
    """Round [n] samples in [-1, 1] to little-endian 16-bit, clipping what lies outside."""
    check_finite(pcm)
    samples = np.clip(np.rint(pcm * np.float32(32767)), -32768, 32767)
    return bytes(samples.astype("<i2").data)


class FloatPcmEncoder:
    """`pcm_f32le`: little-endian float samples only."""

    def encode(self, pcm: FloatArray) -> bytes:
        check_finite(pcm)
        return pcm.astype("<f4").tobytes()

    def finish(self) -> bytes:
        return b""


class PcmEncoder:
    """`pcm_s16le`: samples only."""

    def encode(self, pcm: FloatArray) -> bytes:
        return to_int16_bytes(pcm)

    def finish(self) -> bytes:
        return b""
