"""From patches to chunks: encodes, and decides what is held back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from voxcpm_core.audio.encode import Encoder
from voxcpm_core.audio.resample import StreamResampler
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.serving.ramp import ChunkRamp
from voxcpm_core.types import FloatArray, Patch


@dataclass(frozen=True)
class Chunk:
    """One data response's worth of a stream."""

    audio: bytes  # empty only on the last chunk, or when no audio was asked for
    index: int
    num_samples: int  # fed to the encoder since the chunk before
    latents: FloatArray | None  # [frames, feat_dim]
    finish_reason: str = ""  # set on the last chunk

    @property
    def is_last(self) -> bool:
        return self.finish_reason != ""


class Chunker:
    """Takes the patches of one stream in order. `encoder` is None when only latents are wanted."""

    def __init__(
        self,
        options: OutputOptions,
        encoder: Encoder | None,
        patch_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        resampler: StreamResampler | None = None,
    ) -> None:
        self._options = options
        self._encoder = encoder
        self._resampler = resampler
        self._ramp = ChunkRamp(patch_seconds)
        self._clock = clock
        self._num_chunks = 0
        self._num_held = 0  # patches
        self._num_samples = 0
        self._audio: list[bytes] = []
        self._latents: list[FloatArray] = []

    def add(self, patch: Patch) -> Chunk | None:
        """Take one patch; returns the chunk that is now due, always one for the last patch."""
        self._num_held += 1
        if self._options.wants_latents:
            self._latents.append(patch.latents)
        if self._encoder is not None:
            assert patch.audio is not None
            pcm = patch.audio
            if self._resampler is not None:
                pcm = self._resampler.feed(pcm, is_last=patch.finish_reason is not None)
            self._num_samples += len(pcm)
            self._hold(self._encoder.encode(pcm))
        if patch.finish_reason is not None:
            if self._encoder is not None:
                self._hold(self._encoder.finish())
            return self._take(patch.finish_reason.value)
        can_send = self._options.stream and (self._encoder is None or bool(self._audio))
        if not can_send or not self._ramp.is_due(self._num_held, self._clock()):
            return None
        self._ramp.record(self._num_held, self._clock())
        return self._take("")

    def _hold(self, data: bytes) -> None:
        if data:
            self._audio.append(data)

    def _take(self, finish_reason: str) -> Chunk:
        latents = np.concatenate(self._latents).astype(np.float32, copy=False) if self._latents else None
        chunk = Chunk(b"".join(self._audio), self._num_chunks, self._num_samples, latents, finish_reason)
        self._num_chunks += 1
        self._num_held = self._num_samples = 0
        self._audio, self._latents = [], []
        return chunk
