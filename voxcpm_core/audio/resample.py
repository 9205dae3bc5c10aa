"""Output at another rate than the model's: continuous across chunks."""

from __future__ import annotations

import numpy as np
import soxr

from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.types import FloatArray

MIN_RATE, MAX_RATE = 8_000, 192_000  # Hz
OPUS_DEFAULT_RATE = 48_000


def output_rate(format: str, requested: int | None, model_rate: int) -> int:
    """The rate of the answer: the one asked for, else the model's own (opus knows no 44.1 kHz and takes 48 kHz).

    Raises INVALID_PARAMETER outside 8 to 192 kHz; what a format does not have its encoder refuses.
    """
    if requested is None:
        return OPUS_DEFAULT_RATE if format == "opus" and model_rate == 44_100 else model_rate
    if not MIN_RATE <= requested <= MAX_RATE:
        raise invalid_parameter(f"sample_rate: expected {MIN_RATE} to {MAX_RATE} Hz, got {shown(requested)}")
    return requested


class StreamResampler:
    """Resamples one stream (soxr HQ); its chunks, joined, are the whole resampled at once."""

    def __init__(self, from_rate: int, to_rate: int) -> None:
        self._stream = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32")

    def feed(self, pcm: FloatArray, is_last: bool) -> FloatArray:
        """[n] samples in, [m] out; the filter holds some back until the last call."""
        resampled: FloatArray = self._stream.resample_chunk(pcm, last=is_last)
        return np.clip(resampled, -1.0, 1.0, out=resampled)  # the filter overshoots at full scale
