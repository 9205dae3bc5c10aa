"""SwiGLU behind a product as one Triton kernel, with the scale of rows that the product left to it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.triton_norm import inverse_rms_of_one
from voxcpm_core.kernels.triton_pdl import begin, dependent

MANY_ROWS = 1024
NUM_WARPS = 8  # of a program, as was fastest on an H200


@triton.jit
def silu_times(gate, up):
    """Rounded where the reference is: behind silu, and behind the product."""
    wide = gate.to(tl.float32)
    return (wide / (1.0 + tl.exp(-wide))).to(gate.dtype) * up


@triton.jit
def _swiglu(
    gate_up_ptr, x_ptr, out_ptr, ffn, eps, SCALED: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row's; x: [rows, HIDDEN], WIDTH or less, read where not SCALED."""
    begin(PDL)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < ffn
    gate = tl.load(gate_up_ptr + row * 2 * ffn + at, mask=mask, other=0.0)
    up = tl.load(gate_up_ptr + row * 2 * ffn + ffn + at, mask=mask, other=0.0)
    if not SCALED:
        inverse = inverse_rms_of_one(x_ptr + row * HIDDEN, eps, HIDDEN, WIDTH)
        gate = (gate.to(tl.float32) * inverse).to(gate.dtype)
        up = (up.to(tl.float32) * inverse).to(up.dtype)
    tl.store(out_ptr + row * ffn + at, silu_times(gate, up), mask=mask)


def block_of(num_rows: int) -> int:
    """Values of a program: where there are many rows fewer programs read the same of x."""
    return 4096 if num_rows >= MANY_ROWS else 2048


def swiglu(gate_up: Tensor, x: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """silu of the first half times the second: [..., 2 * ffn] -> [..., ffn].

    x: [..., hidden], by whose inverse RMS the rows of `gate_up` have yet to be scaled; None: they need no more.
    """
    ffn = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], ffn)
    num_rows, hidden = out.numel() // ffn, 1 if x is None else x.shape[-1]
    block = block_of(num_rows)
    _swiglu[(num_rows, triton.cdiv(ffn, block))](
        gate_up, gate_up if x is None else x.contiguous(), out, ffn, eps,
        SCALED=x is None, HIDDEN=hidden, WIDTH=triton.next_power_of_2(hidden), BLOCK=block,
        num_warps=NUM_WARPS, **dependent(out.device, num_rows),
    )  # fmt: skip
    return out
