"""LayerOps in Triton: norms, residual sums and gating here, one kernel each; the others in modules of their own."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.triton_attention import triton_paged_attention
from voxcpm_core.kernels.triton_guidance import guided_step
from voxcpm_core.kernels.triton_local_attention import local_attention
from voxcpm_core.kernels.triton_rope import rotate_and_store

BLOCK = 1024  # values of a gating program


@triton.jit
def _normed(x, weight, hidden, eps):
    """x, weight: one row in their dtype. In fp32, rounded before the weight as the reference does."""
    wide = x.to(tl.float32)
    variance = tl.sum(wide * wide, axis=0) / hidden
    return (wide * tl.rsqrt(variance + eps)).to(x.dtype) * weight


@triton.jit
def _norm(x_ptr, weight_ptr, out_ptr, hidden, eps, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    mask = at < hidden
    row = tl.program_id(0).to(tl.int64) * hidden + at
    x = tl.load(x_ptr + row, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0)
    tl.store(out_ptr + row, _normed(x, weight, hidden, eps), mask=mask)


@triton.jit
def _add_norm(
    x_ptr, branch_ptr, weight_ptr, sum_ptr, out_ptr, hidden, scale, eps, SCALED: tl.constexpr, WIDTH: tl.constexpr
):
    at = tl.arange(0, WIDTH)
    mask = at < hidden
    row = tl.program_id(0).to(tl.int64) * hidden + at
    x = tl.load(x_ptr + row, mask=mask, other=0.0)
    branch = tl.load(branch_ptr + row, mask=mask, other=0.0)
    if SCALED:
        branch = (branch.to(tl.float32) * scale).to(x.dtype)
    x = (x.to(tl.float32) + branch.to(tl.float32)).to(x.dtype)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0)
    tl.store(sum_ptr + row, x, mask=mask)
    tl.store(out_ptr + row, _normed(x, weight, hidden, eps), mask=mask)


@triton.jit
def _swiglu(gate_up_ptr, out_ptr, ffn, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < ffn
    gate = tl.load(gate_up_ptr + row * 2 * ffn + at, mask=mask, other=0.0)
    up = tl.load(gate_up_ptr + row * 2 * ffn + ffn + at, mask=mask, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out_ptr + row * ffn + at, silu * up, mask=mask)


class TritonLayerOps:
    """LayerOps on a CUDA device."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        hidden, out = x.shape[-1], x.new_empty(x.shape)
        _norm[(x.numel() // hidden,)](x, weight, out, hidden, eps, WIDTH=triton.next_power_of_2(hidden))
        return out

    def add_norm(self, x: Tensor, branch: Tensor, scale: float, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        x, branch = x.contiguous(), branch.contiguous()
        hidden, total, out = x.shape[-1], x.new_empty(x.shape), x.new_empty(x.shape)
        _add_norm[(x.numel() // hidden,)](
            x, branch, weight, total, out, hidden, scale, eps,
            SCALED=scale != 1.0, WIDTH=triton.next_power_of_2(hidden),
        )  # fmt: skip
        return total, out

    def swiglu(self, gate_up: Tensor) -> Tensor:
        gate_up = gate_up.contiguous()
        ffn = gate_up.shape[-1] // 2
        out = gate_up.new_empty(*gate_up.shape[:-1], ffn)
        _swiglu[(out.numel() // ffn, triton.cdiv(ffn, BLOCK))](gate_up, out, ffn, BLOCK=BLOCK)
        return out

    def local_attention(self, qkv: Tensor, config: TransformerConfig, rotation: Rotation | None) -> Tensor:
        return local_attention(qkv, config, rotation)

    def paged_attention(
        self, qkv: Tensor, config: TransformerConfig, rotation: Rotation | None, pages: Tensor, context: PagedContext
    ) -> Tensor:
        q = rotate_and_store(qkv, config, rotation, pages[0], pages[1], context)
        return triton_paged_attention(q, pages[0], pages[1], context).flatten(-2)

    def guided_step(self, x: Tensor, velocity: Tensor, cfg_value: Tensor, step: Tensor) -> Tensor:
        return guided_step(x, velocity, cfg_value, step)
