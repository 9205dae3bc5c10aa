"""Low-rank adapters as two grouped Triton kernels: a sequence without an adapter costs programs that return at once.

A program has tokens of one sequence, so that all its rows have one adapter, and a batch may mix any.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.lora import LoraStack, Norm
from voxcpm_core.kernels.triton_pdl import begin, dependent

MIN_SIDE = 16  # of a matrix product
MAX_BLOCK_TOKENS = 64
K_BYTES = 256  # of a row of x or A that a pass reads
BLOCK_N = 128
MAX_LAYERS = 3  # that one product merges
# Nothing of these is compiled in: no kernel must be compiled for one more value while streams run.
VARYING: Any = {"do_not_specialize": ["num_tokens", "num_rows"], "do_not_specialize_on_alignment": ["rows_ptr"]}


@triton.jit(**VARYING)
def _shrink(
    x_ptr, a_ptr, norm_ptr, rows_ptr, shrunk_ptr, num_tokens, num_rows, eps,
    K: tl.constexpr, RANK: tl.constexpr, LAYERS: tl.constexpr, SLOT: tl.constexpr, NORM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A x of one layer. x: [N, num_tokens, K]; a: slots SLOT values apart; shrunk: [N, num_tokens, LAYERS * RANK]."""
    begin(PDL)
    sequence, block, layer = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(rows_ptr + sequence % num_rows)
    if slot >= 0:
        first = sequence.to(tl.int64) * num_tokens + block * BLOCK_M
        x_ptr += first * K
        a_ptr += slot * SLOT + layer * (RANK * K)
        token, row, at = tl.arange(0, BLOCK_M), tl.arange(0, RANK), tl.arange(0, BLOCK_K)
        is_token = token < num_tokens - block * BLOCK_M
        acc = tl.zeros((BLOCK_M, RANK), tl.float32)
        squares = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
        for k in range(0, K, BLOCK_K):
            inside = k + at < K
            x = tl.load(x_ptr + k + (token[:, None] * K + at[None, :]), mask=is_token[:, None] & inside[None, :],
                        other=0.0)  # fmt: skip
            a = tl.load(a_ptr + k + (row[:, None] * K + at[None, :]), mask=inside[None, :], other=0.0)
            if NORM:
                wide = x.to(tl.float32)
                squares += wide * wide
                weight = tl.load(norm_ptr + k + at, mask=inside, other=0.0)
                x = (wide * weight.to(tl.float32)[None, :]).to(x.dtype)
            acc = tl.dot(x, tl.trans(a), acc, input_precision="ieee")
        if NORM:
            acc = acc * tl.rsqrt(tl.sum(squares, axis=1) / K + eps)[:, None]
        shrunk_ptr += first * (LAYERS * RANK) + layer * RANK
        tl.store(shrunk_ptr + (token[:, None] * (LAYERS * RANK) + row[None, :]),
                 acc.to(shrunk_ptr.dtype.element_ty), mask=is_token[:, None])  # fmt: skip


@triton.jit(**VARYING)
def _expand(
    shrunk_ptr, b_ptr, rows_ptr, y_ptr, num_tokens, num_rows, scale,
    N0: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr,
    RANK: tl.constexpr, LAYERS: tl.constexpr, SLOT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """y += scale * B shrunk, for tokens of one sequence and columns of one layer. y: [N, num_tokens, N0 + N1 + N2]."""
    begin(PDL)
    sequence, block, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot = tl.load(rows_ptr + sequence % num_rows)
    if slot >= 0:
        width: tl.constexpr = N0 + N1 + N2
        tiles_0: tl.constexpr = (N0 + BLOCK_N - 1) // BLOCK_N  # not tl.cdiv: Triton 3.6 makes a tensor of it
        tiles_1: tl.constexpr = (N1 + BLOCK_N - 1) // BLOCK_N
        layer = (tile >= tiles_0).to(tl.int32) + (tile >= tiles_0 + tiles_1).to(tl.int32)
        start = tl.where(layer == 0, 0, tl.where(layer == 1, N0, N0 + N1))  # of the layer's columns
        end = tl.where(layer == 0, N0, tl.where(layer == 1, N0 + N1, width))
        before = tl.where(layer == 0, 0, tl.where(layer == 1, tiles_0, tiles_0 + tiles_1))
        column = start + (tile - before) * BLOCK_N
        first = sequence.to(tl.int64) * num_tokens + block * BLOCK_M
        shrunk_ptr += first * (LAYERS * RANK) + layer * RANK
        b_ptr += slot * SLOT + column * RANK
        y_ptr += first * width + column
        token, at, row = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, RANK)
        is_token, is_column = token < num_tokens - block * BLOCK_M, at < end - column
        shrunk = tl.load(shrunk_ptr + (token[:, None] * (LAYERS * RANK) + row[None, :]), mask=is_token[:, None],
                         other=0.0)  # fmt: skip
        b = tl.load(b_ptr + (at[:, None] * RANK + row[None, :]), mask=is_column[:, None], other=0.0)
        update = tl.dot(shrunk, tl.trans(b), input_precision="ieee")
        inside = is_token[:, None] & is_column[None, :]
        y_at = y_ptr + (token[:, None] * width + at[None, :])
        y = tl.load(y_at, mask=inside, other=0.0)
        tl.store(y_at, (y.to(tl.float32) + update * scale).to(y.dtype), mask=inside)


def shrink_constants(stack: LoraStack, has_norm: bool, num_tokens: int) -> dict[str, Any]:
    """The kernel's compile-time arguments."""
    return {
        "K": stack.a.shape[-1], "RANK": stack.rank, "LAYERS": len(stack.nums_out), "SLOT": stack.a.stride(0),
        "NORM": has_norm, "BLOCK_M": block_tokens(num_tokens), "BLOCK_K": K_BYTES // stack.a.itemsize,
    }  # fmt: skip


def expand_constants(stack: LoraStack, num_tokens: int) -> dict[str, Any]:
    """Likewise."""
    nums_out = (*stack.nums_out, *[0] * (MAX_LAYERS - len(stack.nums_out)))
    return {
        **dict(zip(("N0", "N1", "N2"), nums_out, strict=True)), "RANK": stack.rank, "LAYERS": len(stack.nums_out),
        "SLOT": stack.b.stride(0), "BLOCK_M": block_tokens(num_tokens), "BLOCK_N": BLOCK_N,
    }  # fmt: skip


def block_tokens(num_tokens: int) -> int:
    """Tokens of a program."""
    return min(MAX_BLOCK_TOKENS, max(MIN_SIDE, triton.next_power_of_2(num_tokens)))


def triton_lora(stack: LoraStack, rows: Tensor, y: Tensor, x: Tensor, scale: float, norm: Norm | None) -> Tensor:
    """`LoraStack.add`, into y. Ranks are 16, 32 or 64. Safe in a CUDA graph."""
    assert y.is_contiguous()
    assert rows.is_contiguous()
    x = x.contiguous()
    num_sequences, num_tokens = x.shape[0], x.shape[1:-1].numel()
    num_layers, num_blocks = len(stack.nums_out), triton.cdiv(num_tokens, block_tokens(num_tokens))
    shrunk = x.new_empty(num_sequences, num_tokens, num_layers * stack.rank)  # read only where it was written
    norm_weight, eps = (x, 0.0) if norm is None else norm
    _shrink[(num_sequences, num_blocks, num_layers)](
        x, stack.a, norm_weight, rows, shrunk, num_tokens, len(rows), eps,
        **shrink_constants(stack, norm is not None, num_tokens), **dependent(x.device, num_sequences * num_tokens),
    )  # fmt: skip
    tiles = sum(triton.cdiv(num_out, BLOCK_N) for num_out in stack.nums_out)
    _expand[(num_sequences, num_blocks, tiles)](
        shrunk, stack.b, rows, y, num_tokens, len(rows), scale, **expand_constants(stack, num_tokens),
        **dependent(x.device, num_sequences * num_tokens),
    )  # fmt: skip
    return y
