"""Where the start noise of a patch comes from. Serving uses counters; parity tests replay recorded draws."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from voxcpm_core.kernels.noise import philox_normal


class NoiseSource(Protocol):
    """Noise keyed by (seed, patch): the same whatever the batch or the schedule."""

    def __call__(self, seeds: Tensor, patch_indices: Tensor, patch_size: int, feat_dim: int) -> Tensor:
        """seeds, patch_indices: int64 [B] -> standard normal float32 [B, P, C]."""


def counter_noise(seeds: Tensor, patch_indices: Tensor, patch_size: int, feat_dim: int) -> Tensor:
    """The serving source."""
    return philox_normal(seeds, patch_indices, patch_size * feat_dim).unflatten(1, (patch_size, feat_dim))
