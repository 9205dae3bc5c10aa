"""Counter-based normal noise: Philox4x32-10 keyed by (seed, patch, element).

The noise of a patch depends on nothing else, so it is the same whatever the batch or the schedule.
Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF
_DRAWS_PER_COUNTER = 4


def _multiply(a: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    """High and low 32 bits of a product of 32-bit values held in int64 (which wraps modulo 2^64)."""
    product = a * constant
    return (product >> 32) & _MASK, product & _MASK


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10 of broadcastable int64 tensors that hold 32-bit values; four 32-bit draws."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def _normal_pair(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Box-Muller on 32-bit draws.

    In float64, so that libraries and vector widths, which round log and cos differently, agree once the
    result is rounded to float32.
    """
    radius = torch.sqrt(-2.0 * torch.log((u.double() + 0.5) * 2.0**-32))
    angle = v.double() * (2.0 * math.pi * 2.0**-32)
    return radius * torch.cos(angle), radius * torch.sin(angle)


def philox_normal(seeds: Tensor, patch_indices: Tensor, num_elements: int) -> Tensor:
    """Standard normal noise.

    seeds: int64 [B]; patch_indices: int64 [B]; returns float32 [B, num_elements].
    """
    num_counters = -(-num_elements // _DRAWS_PER_COUNTER)
    element = torch.arange(num_counters, device=seeds.device).unsqueeze(0)  # [1, N / 4]
    patch = patch_indices.unsqueeze(1)  # [B, 1]
    zero = torch.zeros_like(element)
    key = ((seeds & _MASK).unsqueeze(1), ((seeds >> 32) & _MASK).unsqueeze(1))
    draws = philox((element, patch, zero, zero), key)
    normals = (*_normal_pair(draws[0], draws[1]), *_normal_pair(draws[2], draws[3]))
    return torch.stack(normals, dim=-1).flatten(1)[:, :num_elements].float()
