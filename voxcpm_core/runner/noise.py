"""Where the start noise of a patch comes from. Serving uses counters; parity tests replay recorded draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor


class NoiseSource(Protocol):
    """Noise keyed by (seed, patch): the same whatever the batch or the schedule."""

    def __call__(self, seeds: Tensor, patch_indices: Tensor, patch_size: int, feat_dim: int) -> Tensor:
        """seeds, patch_indices: int64 [B] -> standard normal float32 [B, P, C]."""


class CounterNoise:
    """The serving source, over one implementation of `philox_normal`."""

    def __init__(self, normal: Callable[[Tensor, Tensor, int], Tensor]) -> None:
        self._normal = normal

    def __call__(self, seeds: Tensor, patch_indices: Tensor, patch_size: int, feat_dim: int) -> Tensor:
        return self._normal(seeds, patch_indices, patch_size * feat_dim).unflatten(1, (patch_size, feat_dim))
