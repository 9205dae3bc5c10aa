"""The counter-based noise of `kernels.noise` as one Triton kernel: in torch its rounds are hundreds of launches."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # counters of a program; each gives four values


@triton.jit
def _radius(draws):
    return tl.sqrt(-2.0 * tl.log((draws.to(tl.uint32).to(tl.float64) + 0.5) * 2.3283064365386963e-10))  # 2^-32


@triton.jit
def _angle(draws, UNIT: tl.constexpr):
    return draws.to(tl.uint32).to(tl.float64) * UNIT


@triton.jit
def _normal(seeds_ptr, patches_ptr, out_ptr, num_elements, UNIT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    counter = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    patch = tl.load(patches_ptr + row).to(tl.uint32)
    zero = tl.zeros((BLOCK,), tl.uint32)
    seed = tl.load(seeds_ptr + row)
    a, b, c, d = tl.philox(seed, counter.to(tl.uint32), zero + patch, zero, zero)
    first, second = _radius(a), _radius(c)
    one, two = _angle(b, UNIT), _angle(d, UNIT)
    at = counter * 4
    out = out_ptr + row.to(tl.int64) * num_elements + at
    tl.store(out, (first * tl.cos(one)).to(tl.float32), mask=at < num_elements)
    tl.store(out + 1, (first * tl.sin(one)).to(tl.float32), mask=at + 1 < num_elements)
    tl.store(out + 2, (second * tl.cos(two)).to(tl.float32), mask=at + 2 < num_elements)
    tl.store(out + 3, (second * tl.sin(two)).to(tl.float32), mask=at + 3 < num_elements)


def triton_philox_normal(seeds: Tensor, patch_indices: Tensor, num_elements: int) -> Tensor:
    """`philox_normal` on a CUDA device. seeds, patch_indices: int64 [B]; returns float32 [B, num_elements]."""
    out = torch.empty(len(seeds), num_elements, device=seeds.device)
    grid = (len(seeds), triton.cdiv(num_elements, 4 * BLOCK))
    _normal[grid](seeds, patch_indices, out, num_elements, UNIT=2.0 * math.pi * 2.0**-32, BLOCK=BLOCK)
    return out
