"""What the DiT's blocks begin with as one Triton kernel: mu and the time, cond, and the product of the patch with W.

A program has some columns of all tokens of one stream, with the condition and without.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.triton_layout import settled
from voxcpm_core.kernels.triton_pdl import dependent, grid_control

MIN_SIDE = 16  # of a matrix product
BLOCK = 64  # columns of a program: with one stream, of the releases' 1024, there are 16 programs


@triton.jit
def _dit_tokens(
    x_ptr, weight_ptr, bias_ptr, mu_ptr, time_ptr, cond_ptr, out_ptr, batch,
    HIDDEN: tl.constexpr, FEATURES: tl.constexpr, MU_TOKENS: tl.constexpr, PATCH: tl.constexpr, ROWS: tl.constexpr,
    DEPTH: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr, COMPILED: tl.constexpr,
):  # fmt: skip
    """x: [batch, PATCH, FEATURES]; W: [HIDDEN, FEATURES]; out: [2 batch, tokens, HIDDEN].

    ROWS holds PATCH and the tokens before cond, DEPTH holds FEATURES.
    """
    if PDL:
        grid_control("launch_dependents")
    stream = tl.program_id(0).to(tl.int64)
    row, depth, column = tl.arange(0, ROWS), tl.arange(0, DEPTH), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_row, is_depth, is_column = row < PATCH, depth < FEATURES, column < HIDDEN
    weight_at = weight_ptr + column[:, None] * FEATURES + depth[None, :]
    weight = tl.load(weight_at, mask=is_column[:, None] & is_depth[None, :], other=0.0)
    bias = tl.load(bias_ptr + column, mask=is_column, other=0.0).to(tl.float32)
    if PDL:
        grid_control("wait")  # the weights were there already
    x_at = (stream * PATCH + row)[:, None] * FEATURES + depth[None, :]
    x = tl.load(x_ptr + x_at, mask=is_row[:, None] & is_depth[None, :], other=0.0)
    at, inside = row[:, None] * HIDDEN + column[None, :], is_row[:, None] & is_column[None, :]
    cond = tl.load(cond_ptr + stream * (PATCH * HIDDEN) + at, mask=inside, other=0.0)
    num_mu: tl.constexpr = MU_TOKENS if MU_TOKENS > 0 else 1
    is_mu = (row < num_mu)[:, None] & is_column[None, :]
    mu = tl.load(mu_ptr + stream * (num_mu * HIDDEN) + at, mask=is_mu, other=0.0)
    is_time = (row == MU_TOKENS)[:, None] & is_column[None, :]  # zero elsewhere, so that where both are they are added
    time = tl.load(time_ptr + (at - MU_TOKENS * HIDDEN), mask=is_time, other=0.0)
    product = tl.dot(settled(x, COMPILED), tl.trans(settled(weight, COMPILED)), input_precision="ieee")
    projected = (product + bias[None, :]).to(x.dtype)
    head: tl.constexpr = MU_TOKENS + 1
    is_head = (row < head)[:, None] & is_column[None, :]
    tokens: tl.constexpr = head + 2 * PATCH
    with_mu = out_ptr + stream * (tokens * HIDDEN) + at
    without = out_ptr + (stream + batch) * (tokens * HIDDEN) + at
    tl.store(with_mu, mu + time, mask=is_head)
    tl.store(without, time, mask=is_head)
    tl.store(with_mu + head * HIDDEN, cond, mask=inside)
    tl.store(without + head * HIDDEN, cond, mask=inside)
    tl.store(with_mu + (head + PATCH) * HIDDEN, projected, mask=inside)
    tl.store(without + (head + PATCH) * HIDDEN, projected, mask=inside)


def constants(hidden: int, features: int, mu_tokens: int, patch_size: int) -> dict[str, Any]:
    """The kernel's compile-time arguments."""
    return {
        "HIDDEN": hidden, "FEATURES": features, "MU_TOKENS": mu_tokens, "PATCH": patch_size,
        "ROWS": max(triton.next_power_of_2(max(patch_size, mu_tokens + 1)), MIN_SIDE),
        "DEPTH": max(triton.next_power_of_2(features), MIN_SIDE), "BLOCK": BLOCK,
    }  # fmt: skip


def dit_tokens(x: Tensor, in_proj: Linear, mu: Tensor, mu_tokens: int, time_token: Tensor, cond: Tensor) -> Tensor:
    """`LayerOps.dit_tokens`; no adapter changes `in_proj`, and its weight is never in float8."""
    assert in_proj.lora is None
    assert in_proj.scales is None
    assert in_proj.weight.is_contiguous()
    batch, patch_size, features = x.shape
    hidden = cond.shape[-1]
    out = torch.empty(2 * batch, mu_tokens + 1 + 2 * patch_size, hidden, device=x.device, dtype=x.dtype)
    _dit_tokens[(batch, triton.cdiv(hidden, BLOCK))](
        x.contiguous(), in_proj.weight, in_proj.bias, mu.contiguous(), time_token.contiguous(), cond.contiguous(),
        out, batch, **constants(hidden, features, mu_tokens, patch_size), COMPILED=x.is_cuda,
        **dependent(x.device, batch),
    )  # fmt: skip
    return out
