"""Weights in 8 bits: float8 (e4m3), with one scale for each row of a matrix."""

from __future__ import annotations

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # that it holds
SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # of rows of zeros, too


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[out, in] as float8 of the same shape, and float32 [out], by which its rows are to be multiplied.

    A value is off by at most 1/16 of itself or 1/1024 of its row's scale.
    """
    wide = weight.float()
    scales = (wide.abs().amax(dim=1) / LARGEST).clamp(min=SMALLEST_SCALE)
    return (wide / scales.unsqueeze(1)).to(FP8), scales


def dequantised(weight: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """What `quantised` gave, rounded to `dtype`. # [out, in]"""
    wide = weight.float() if weight.is_cuda else _widened(weight)
    return (wide * scales.unsqueeze(1)).to(dtype)


def _widened(weight: Tensor) -> Tensor:
    """`weight.float()` for what `quantised` gives, in a fraction of the time that torch takes on a CPU.

    Exponent and fraction go to their places of a float32, whose exponents begin 120 lower; the sign is there already.
    """
    placed = (weight.view(torch.int8).to(torch.int32) << 20) & ~(0xF << 27)
    return placed.view(torch.float32) * 2.0**120
