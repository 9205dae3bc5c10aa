"""`retry_badcase`: a generation that runs away is made again, by the official package's rule."""

from __future__ import annotations

from dataclasses import replace

from voxcpm_core.prepare import CAP_PATCHES_PER_TOKEN
from voxcpm_core.types import EngineRequest

MAX_ATTEMPTS = 3
_NUM_SEEDS = 1 << 64


def attempts(request: EngineRequest, num_target_tokens: int) -> tuple[EngineRequest, ...]:
    """The generations to make one after the other, each with its seed, until one ends before its limit.

    6 patches per token of the target text are a bad case, and the last attempt counts whatever it is. So each but the
    last stops there; when it ends earlier it is what `request` with its seed gives. The first has `request`'s seed.
    """
    badcase_patches = CAP_PATCHES_PER_TOKEN * num_target_tokens
    if request.max_patches < badcase_patches:
        return (request,)
    tries = [replace(request, seed=_shifted(request.seed, index)) for index in range(MAX_ATTEMPTS)]
    return (*(replace(each, max_patches=badcase_patches) for each in tries[:-1]), tries[-1])


def _shifted(seed: int, by: int) -> int:
    """A 64-bit seed further on; behind the largest comes the smallest."""
    return (seed + by + _NUM_SEEDS // 2) % _NUM_SEEDS - _NUM_SEEDS // 2
