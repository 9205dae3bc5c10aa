"""Uploaded audio files are decoded in child processes, so that a file that crashes its decoder does no harm."""

from __future__ import annotations

import numpy as np

from voxcpm_core.children import ChildDied, ChildPool, ChildTooSlow, Departure, stays
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.types import FloatArray

NUM_CHILDREN = 2
LIMIT_S = 30.0  # for one file; a minute at the highest rate and most channels takes a third of it


class AudioDecoder:
    """Thread-safe; at most `NUM_CHILDREN` files are decoded at once, in the order in which they came."""

    def __init__(self, sample_rate: int, max_seconds: float, limit_s: float = LIMIT_S) -> None:
        """Waveforms come at `sample_rate`; longer files than `max_seconds` are refused."""
        command = ("-m", "voxcpm_core.audio.decoder_child", str(sample_rate), str(max_seconds))
        self._pool = ChildPool(command, NUM_CHILDREN, limit_s)
        self._limit_s = limit_s
        self._pool.warm_up()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the child processes that live."""
        return self._pool.pids

    def decode(self, data: bytes, departure: Departure = stays) -> FloatArray:
        """A wav, flac, ogg or mp3 file as mono samples, [samples].

        Raises RequestError: INVALID_AUDIO as `decode_audio` does, and for a file that crashes its decoder or takes
        longer than the limit; what `departure` gives, which is asked every 0.2 s; NOT_READY once closed.
        """
        try:
            samples = self._pool.call(data, departure)
        except ChildDied:
            raise RequestError(ErrorCode.INVALID_AUDIO, "the data crashes the decoder of its format") from None
        except ChildTooSlow:
            raise RequestError(ErrorCode.INVALID_AUDIO, f"decoding takes longer than {self._limit_s:g} s") from None
        return np.frombuffer(samples, np.float32).copy()

    def close(self) -> None:
        """End the child processes; decoding that is under way or comes later raises NOT_READY."""
        self._pool.close()
