"""Where the outputs of a step lie, all in one memory, so that one copy brings them to the host. No torch here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from voxcpm_core.config import ModelConfig
from voxcpm_core.types import FloatArray

_ALIGNMENT = 64  # bytes, of each part: kernels read and write whole vectors


class HostOutputs(NamedTuple):
    """Views of host memory: B rows, which may be the first of more."""

    latents: FloatArray  # [B, P, C]
    stops: npt.NDArray[np.bool_]  # [B]
    audio: FloatArray  # [B, samples_per_patch], or [0, samples_per_patch] when nobody hears any


class OutputLayout(NamedTuple):
    """Latents, then stop flags, then audio; a step that nobody hears ends before that."""

    patch_size: int
    feat_dim: int
    samples_per_patch: int

    @classmethod
    def of(cls, model: ModelConfig) -> OutputLayout:
        return cls(model.patch_size, model.feat_dim, model.samples_per_patch)

    def starts(self, num_rows: int) -> tuple[int, int]:
        """Of stop flags and audio, in bytes."""
        stops_at = _aligned(4 * num_rows * self.patch_size * self.feat_dim)
        return stops_at, stops_at + _aligned(num_rows)

    def num_bytes(self, num_rows: int, with_audio: bool = True) -> int:
        return self.starts(num_rows)[1] + 4 * num_rows * self.samples_per_patch * with_audio

    def on_host(self, memory: npt.NDArray[np.uint8], num_rows: int, num_wanted: int) -> HostOutputs:
        """The first `num_wanted` rows of so many. memory: [num_bytes]."""
        stops_at, audio_at = self.starts(num_rows)
        num_audio = num_wanted if memory.size > audio_at else 0
        return HostOutputs(
            np.ndarray((num_wanted, self.patch_size, self.feat_dim), np.float32, memory),
            np.ndarray(num_wanted, np.bool_, memory, stops_at),
            np.ndarray((num_audio, self.samples_per_patch), np.float32, memory, audio_at),
        )


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
