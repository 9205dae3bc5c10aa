"""Products with weights in float8: widened inside the products' kernel, or with rows in float8 where those are many.

Many rows outweigh the weights, so that it pays to round them to float8, too, each with a scale of its own, and to leave
the product to the tensor cores' own float8 (`torch._scaled_mm`).
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.fp8 import FP8, LARGEST, SMALLEST_SCALE
from voxcpm_core.kernels.linear import Linear

MIN_CAPABILITY = (8, 9)  # that knows float8
ALIGNMENT = 16  # values, of both sides of a weight in `torch._scaled_mm`
WIDE = 4096  # values of a row that take more warps


@triton.jit
def widened(codes, dtype: tl.constexpr, KNOWN: tl.constexpr):
    """Float8, given as uint8, exactly in that type; KNOWN: the GPU has float8."""
    if KNOWN:
        return codes.to(tl.float8e4nv, bitcast=True).to(dtype)
    # Exponent and fraction in their places of a float32, whose exponents begin 120 lower; also those below the normal.
    bits = codes.to(tl.uint32)
    placed = ((bits & 0x80) << 24) | ((bits & 0x7F) << 20)
    return (placed.to(tl.float32, bitcast=True) * 1.329227995784916e36).to(dtype)  # 2 ** 120


@triton.jit
def _quantise(
    x_ptr, out_ptr, scales_ptr, k, eps,
    NORM: tl.constexpr, WIDTH: tl.constexpr, LARGEST: tl.constexpr, SMALLEST_SCALE: tl.constexpr,
):  # fmt: skip
    """One row, after the norm where there is one, whose weight is another's."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    mask = at < k
    x = tl.load(x_ptr + row * k + at, mask=mask, other=0.0)
    values = x.to(tl.float32)
    if NORM:
        inverse = tl.rsqrt(tl.sum(values * values, axis=0) / k + eps)
        values = (values * inverse).to(x.dtype).to(tl.float32)  # rounded as by a norm of its own
    scale = tl.maximum(tl.max(tl.abs(values), axis=0) / LARGEST, SMALLEST_SCALE)
    codes = (values / scale).to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    tl.store(out_ptr + row * k + at, codes, mask=mask)
    tl.store(scales_ptr + row, scale)


def quantised_rows(x: Tensor, eps: float | None) -> tuple[Tensor, Tensor]:
    """x: [rows, k] -> float8 [rows, k] of x, or of its RMS norm, and float32 [rows, 1], by which rows are multiplied.

    eps: of the norm; None: there is none.
    """
    x = x.contiguous()
    num_rows, k = x.shape
    codes = torch.empty(num_rows, k, dtype=torch.uint8, device=x.device)
    scales = torch.empty(num_rows, 1, dtype=torch.float32, device=x.device)
    _quantise[(num_rows,)](
        x, codes, scales, k, eps or 0.0, NORM=eps is not None, **constants(k), num_warps=8 if k > WIDE else 4,
    )  # fmt: skip
    return codes.view(FP8), scales


def constants(k: int) -> dict[str, int | float]:
    """Compile-time arguments of rows of k values."""
    return {"WIDTH": triton.next_power_of_2(k), "LARGEST": LARGEST, "SMALLEST_SCALE": SMALLEST_SCALE}


def product_of_quantised(x: Tensor, linear: Linear, eps: float | None = None) -> Tensor:
    """x W^T without adapters, or norm(x) W^T with the eps of a norm: [..., k] -> [..., n], where
    `has_quantised_product`. Safe in a CUDA graph."""
    assert linear.scales is not None
    rows, row_scales = quantised_rows(x.flatten(0, -2), eps)
    y = torch._scaled_mm(
        rows, linear.weight.t(), scale_a=row_scales, scale_b=linear.scales.unsqueeze(0), out_dtype=x.dtype
    )
    return y.unflatten(0, x.shape[:-1])


def has_quantised_product(x: Tensor, linear: Linear) -> bool:
    """Whether the weights are in float8 and torch can multiply them with rows in float8, scaled by rows."""
    is_fit = x.dtype == torch.bfloat16 and all(size % ALIGNMENT == 0 for size in linear.weight.shape)
    return linear.scales is not None and is_fit and _multiplies_rows(x.device)


@cache
def _multiplies_rows(device: torch.device) -> bool:
    """Tried, since of newer GPUs it depends on the build of torch. Not for the first time while a graph is captured."""
    if device.type != "cuda" or not knows_float8(device):
        return False
    codes = torch.zeros(ALIGNMENT, ALIGNMENT, dtype=torch.uint8, device=device).view(FP8)
    scales = torch.ones(ALIGNMENT, 1, device=device)
    try:
        torch._scaled_mm(codes, codes.t(), scale_a=scales, scale_b=scales.t(), out_dtype=torch.bfloat16)
    except RuntimeError:
        return False
    return True


@cache
def knows_float8(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= MIN_CAPABILITY
