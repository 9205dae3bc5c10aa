"""The solver's guided Euler step as one Triton kernel, rounded after every operation as the reference is."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.triton_pdl import begin, dependent


@triton.jit
def _guided_step(x_ptr, velocity_ptr, cfg_ptr, step_ptr, out_ptr, batch, size, WIDTH: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    mask = at < size
    x = tl.load(x_ptr + row * size + at, mask=mask, other=0.0)
    positive = tl.load(velocity_ptr + row * size + at, mask=mask, other=0.0)
    negative = tl.load(velocity_ptr + (row + batch) * size + at, mask=mask, other=0.0)
    dtype = x.dtype
    dot = tl.sum((positive * negative).to(tl.float32), axis=0).to(dtype)
    square = tl.sum((negative * negative).to(tl.float32), axis=0).to(dtype)
    scale = (dot.to(tl.float32) / (square.to(tl.float32) + 1e-8).to(dtype).to(tl.float32)).to(dtype)
    scaled = (negative * scale).to(dtype)
    apart = (positive - scaled).to(dtype)
    guidance = (tl.load(cfg_ptr + row) * apart.to(tl.float32)).to(dtype)
    guided = (scaled + guidance).to(dtype)
    tl.store(out_ptr + row * size + at, x - (tl.load(step_ptr) * guided).to(dtype), mask=mask)


def guided_step(x: Tensor, velocity: Tensor, cfg_value: Tensor, step: Tensor) -> Tensor:
    """`LayerOps.guided_step`."""
    x, velocity = x.contiguous(), velocity.contiguous()
    batch, size = x.shape[0], x[0].numel()
    out = x.new_empty(x.shape)
    width, options = triton.next_power_of_2(size), dependent(x.device, batch)
    _guided_step[(batch,)](x, velocity, cfg_value, step, out, batch, size, WIDTH=width, **options)
    return out
