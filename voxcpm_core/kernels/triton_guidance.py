"""What follows the DiT's blocks as one Triton kernel: norm, product and guided Euler step, a program for each stream.

The norm's weight is part of W, and each row is scaled behind the product. From there on all is rounded after every
operation as the reference is.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.triton_pdl import LINE_BYTES, dependent, grid_control, prefetch

MIN_SIDE = 16  # of a matrix product
K_BYTES = 512  # of a row that a pass reads
OPTIONS = {"num_warps": 4, "num_stages": 1}  # loads that are copied to shared memory ahead take twice as long


@triton.jit
def _guided(x, positive, negative, cfg, step):
    """x moved along the guided velocity. x, positive, negative: [tokens, columns], zero where they are filled up."""
    dtype = x.dtype
    dot = tl.sum(tl.sum((positive * negative).to(tl.float32), axis=1), axis=0).to(dtype)
    square = tl.sum(tl.sum((negative * negative).to(tl.float32), axis=1), axis=0).to(dtype)
    scale = (dot.to(tl.float32) / (square.to(tl.float32) + 1e-8).to(dtype).to(tl.float32)).to(dtype)
    scaled = (negative * scale).to(dtype)
    apart = (positive - scaled).to(dtype)
    guidance = (cfg * apart.to(tl.float32)).to(dtype)
    return x - (step * (scaled + guidance).to(dtype)).to(dtype)


@triton.jit
def _velocity(
    hidden_ptr, weight_ptr, row_at, is_row, eps,
    HIDDEN: tl.constexpr, FEATURES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The product with the RMS norm of the rows that begin at `row_at`: float32 [ROWS, COLUMNS]."""
    column, at = tl.arange(0, COLUMNS), tl.arange(0, BLOCK_K)
    acc = tl.zeros((ROWS, COLUMNS), tl.float32)
    squares = tl.zeros((ROWS, BLOCK_K), tl.float32)
    for k in range(0, HIDDEN, BLOCK_K):
        inside, is_column = is_row[:, None], (column < FEATURES)[:, None]
        if HIDDEN % BLOCK_K != 0:
            inside, is_column = inside & (k + at < HIDDEN)[None, :], is_column & (k + at < HIDDEN)[None, :]
        hidden = tl.load(hidden_ptr + k + (row_at[:, None] + at[None, :]), mask=inside, other=0.0)
        weight = tl.load(weight_ptr + k + (column[:, None] * HIDDEN + at[None, :]), mask=is_column, other=0.0)
        squares += hidden.to(tl.float32) * hidden.to(tl.float32)
        acc = tl.dot(hidden, tl.trans(weight), acc, input_precision="ieee")
    return acc * tl.rsqrt(tl.sum(squares, axis=1) / HIDDEN + eps)[:, None]


@triton.jit
def _guided_step(
    x_ptr, hidden_ptr, weight_ptr, bias_ptr, cfg_ptr, step_ptr, out_ptr, batch, eps,
    HIDDEN: tl.constexpr, FEATURES: tl.constexpr, PATCH: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK_K: tl.constexpr, LINE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x: [batch, PATCH, FEATURES], TOKENS and COLUMNS or less; hidden: [2 batch, PATCH, HIDDEN]; W: [FEATURES, HIDDEN].
    """
    if PDL:
        grid_control("launch_dependents")
        prefetch(weight_ptr, FEATURES, 0, HIDDEN, HIDDEN, COLUMNS, BLOCK_K, LINE)
        grid_control("wait")
    stream = tl.program_id(0).to(tl.int64)
    token, column, row = tl.arange(0, TOKENS), tl.arange(0, COLUMNS), tl.arange(0, 2 * TOKENS)
    is_column, is_row = column < FEATURES, row // 2 < PATCH
    at = (stream * PATCH + token)[:, None] * FEATURES + column[None, :]
    inside = (token < PATCH)[:, None] & is_column[None, :]
    # Asked for ahead of their use.
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + column, mask=is_column, other=0.0).to(tl.float32)
    cfg, step = tl.load(cfg_ptr + stream), tl.load(step_ptr)
    row_at = ((stream + (row % 2) * batch) * PATCH + row // 2) * HIDDEN  # each token's with the condition and without
    velocity = _velocity(
        hidden_ptr, weight_ptr, row_at, is_row, eps, HIDDEN, FEATURES, 2 * TOKENS, COLUMNS, BLOCK_K
    )
    velocity = tl.where(is_row[:, None], velocity + bias[None, :], 0.0).to(x.dtype)
    positive, negative = tl.split(tl.permute(tl.reshape(velocity, (TOKENS, 2, COLUMNS)), (0, 2, 1)))
    tl.store(out_ptr + at, _guided(x, positive, negative, cfg, step), mask=inside)


def constants(hidden: int, features: int, patch_size: int, dtype: torch.dtype) -> dict[str, Any]:
    """The kernel's compile-time arguments."""
    block_k = min(K_BYTES // dtype.itemsize, max(triton.next_power_of_2(hidden), MIN_SIDE))
    return {
        "HIDDEN": hidden, "FEATURES": features, "PATCH": patch_size,
        "TOKENS": max(triton.next_power_of_2(patch_size), MIN_SIDE // 2),
        "COLUMNS": max(triton.next_power_of_2(features), MIN_SIDE),
        "BLOCK_K": block_k, "LINE": min(LINE_BYTES // dtype.itemsize, block_k),
    }  # fmt: skip


def guided_step(x: Tensor, hidden: Tensor, eps: float, out_proj: Linear, cfg_value: Tensor, step: Tensor) -> Tensor:
    """`LayerOps.guided_step`; no adapter changes `out_proj`, and its weight is never in float8."""
    assert out_proj.lora is None
    assert out_proj.scales is None
    assert out_proj.weight.is_contiguous()
    batch, patch_size, features = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _guided_step[(batch,)](
        x.contiguous(), hidden.contiguous(), out_proj.weight, out_proj.bias, cfg_value, step, out, batch, eps,
        **constants(hidden.shape[-1], features, patch_size, x.dtype), **OPTIONS, **dependent(x.device, batch),
    )  # fmt: skip
    return out
