"""The snake of the AudioVAE and its gradient as one Triton kernel each; in plain torch they are most of a step."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.vae.layers import SNAKE_EPS

BLOCK = 1024  # frames of a program's pass


@triton.jit
def _forward(x_ptr, alpha_ptr, out_ptr, num_channels, num_frames, EPS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    alpha = tl.load(alpha_ptr + row % num_channels)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < num_frames
    x = tl.load(x_ptr + row * num_frames + at, mask=mask)
    sine = tl.sin(alpha * x)
    tl.store(out_ptr + row * num_frames + at, x + sine * sine / (alpha + EPS), mask=mask)


@triton.jit
def _backward(
    x_ptr, alpha_ptr, grad_ptr, dx_ptr, dalpha_ptr, num_channels, num_frames, EPS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    alpha = tl.load(alpha_ptr + row % num_channels)
    inverse = 1.0 / (alpha + EPS)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, num_frames, BLOCK):
        at = first + tl.arange(0, BLOCK)
        mask = at < num_frames
        x = tl.load(x_ptr + row * num_frames + at, mask=mask, other=0.0)
        grad = tl.load(grad_ptr + row * num_frames + at, mask=mask, other=0.0)
        sine = tl.sin(alpha * x)
        slope = 2.0 * sine * tl.cos(alpha * x)  # of the squared sine, by alpha x
        tl.store(dx_ptr + row * num_frames + at, grad * (1.0 + slope * alpha * inverse), mask=mask)
        total += grad * (slope * x - sine * sine * inverse) * inverse
    tl.store(dalpha_ptr + row, tl.sum(total))


class FusedSnake(torch.autograd.Function):
    """x [B, C, T], alpha [1, C, 1], both float32 -> x + sin(alpha x)^2 / alpha. # [B, C, T]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor) -> Tensor:
        x, alpha = x.contiguous(), alpha.contiguous()
        ctx.save_for_backward(x, alpha)
        batch, channels, frames = x.shape
        out = torch.empty_like(x)
        grid = (batch * channels, triton.cdiv(frames, BLOCK))
        _forward[grid](x, alpha, out, channels, frames, EPS=SNAKE_EPS, BLOCK=BLOCK)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, alpha = ctx.saved_tensors
        batch, channels, frames = x.shape
        dx, dalpha = torch.empty_like(x), x.new_empty(batch, channels)
        grad = grad.contiguous()
        grid = (batch * channels,)
        _backward[grid](x, alpha, grad, dx, dalpha, channels, frames, EPS=SNAKE_EPS, BLOCK=BLOCK)
        return dx, dalpha.sum(dim=0).view_as(alpha)
