"""The RMS norm as one Triton kernel, and what takes its place behind a product: rows scaled by their inverse RMS.

A row's scale passes through a product, so where whoever takes the result can scale it, the norm costs no kernel: the
product is taken of x itself, with the norm's weight in W.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.triton_pdl import begin, dependent

VALUES = tl.constexpr(4096)  # of x that a pass over several rows holds: 32 a thread


@triton.jit
def summed_squares(x_ptr, is_row, first, last, STRIDE: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr):
    """Over columns `first` to `last`, at most SPAN, of a few rows that stand STRIDE values apart: float32 [ROWS]."""
    width: tl.constexpr = VALUES // ROWS
    at = tl.arange(0, width)
    row_at = x_ptr + tl.arange(0, ROWS)[:, None] * STRIDE
    squares = tl.zeros((ROWS, width), tl.float32)
    for offset in tl.static_range(0, SPAN, width):  # unrolled, so that all reads are under way at once
        column = first + offset + at
        x = tl.load(row_at + column[None, :], mask=is_row[:, None] & (column < last)[None, :], other=0.0)
        squares += x.to(tl.float32) * x.to(tl.float32)
    return tl.sum(squares, axis=1)


@triton.jit
def inverse_rms(x_ptr, is_row, eps, HIDDEN: tl.constexpr, ROWS: tl.constexpr):
    """Of rows of HIDDEN values, one after the other at `x_ptr`: float32 [ROWS]."""
    return tl.rsqrt(summed_squares(x_ptr, is_row, 0, HIDDEN, HIDDEN, HIDDEN, ROWS) / HIDDEN + eps)


@triton.jit
def inverse_rms_of_one(x_ptr, eps, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    """Of the HIDDEN values at `x_ptr`, WIDTH or less."""
    at = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + at, mask=at < HIDDEN, other=0.0).to(tl.float32)
    return tl.rsqrt(tl.sum(x * x, axis=0) / HIDDEN + eps)


@triton.jit
def _norm(x_ptr, weight_ptr, out_ptr, hidden, eps, WEIGHTED: tl.constexpr, WIDTH: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    at = tl.arange(0, WIDTH)
    mask = at < hidden
    row = tl.program_id(0).to(tl.int64) * hidden + at
    x = tl.load(x_ptr + row, mask=mask, other=0.0)
    wide = x.to(tl.float32)
    variance = tl.sum(wide * wide, axis=0) / hidden
    normed = (wide * tl.rsqrt(variance + eps)).to(x.dtype)  # rounded before the weight, as the reference does
    if WEIGHTED:
        normed = normed * tl.load(weight_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + row, normed, mask=mask)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x: [..., hidden]; weight: [hidden], None for ones."""
    x = x.contiguous()
    hidden, out = x.shape[-1], x.new_empty(x.shape)
    num_rows = x.numel() // hidden
    _norm[(num_rows,)](
        x, x if weight is None else weight, out, hidden, eps, WEIGHTED=weight is not None,
        WIDTH=triton.next_power_of_2(hidden), **dependent(x.device, num_rows),
    )  # fmt: skip
    return out
