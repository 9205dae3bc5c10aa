"""RMS norm as a Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.triton_pdl import begin, dependent


@triton.jit
def norm_row(x_ptr, weight_ptr, out_ptr, hidden, eps, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    mask = at < hidden
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0)
    wide = x.to(tl.float32)
    variance = tl.sum(wide * wide, axis=0) / hidden
    normed = (wide * tl.rsqrt(variance + eps)).to(x.dtype)  # rounded before the weight, as the reference does
    tl.store(out_ptr + at, normed * weight, mask=mask)


@triton.jit
def _norm(x_ptr, weight_ptr, out_ptr, hidden, eps, WIDTH: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    row = tl.program_id(0).to(tl.int64) * hidden
    norm_row(x_ptr + row, weight_ptr, out_ptr + row, hidden, eps, WIDTH)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x: [..., hidden]; weight: [hidden]."""
    x = x.contiguous()
    hidden, out = x.shape[-1], x.new_empty(x.shape)
    num_rows, width = x.numel() // hidden, triton.next_power_of_2(hidden)
    _norm[(num_rows,)](x, weight, out, hidden, eps, WIDTH=width, **dependent(x.device, num_rows))
    return out
