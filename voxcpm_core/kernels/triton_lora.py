"""Low-rank adapters as two grouped Triton kernels: tokens without an adapter cost programs that return at once.

The first shrinks (`triton_lora_shrink`). The second expands, and adds to what the product gave; where gating follows it
gates, too, so that the sum is never written.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.lora import LoraKernel, LoraStack
from voxcpm_core.kernels.triton_gating import silu_times
from voxcpm_core.kernels.triton_lora_shrink import num_splits, shrink, shrunk
from voxcpm_core.kernels.triton_lora_tiles import Tiles, read_tile, tiles_of
from voxcpm_core.kernels.triton_pdl import begin, dependent

MAX_LAYERS = 3  # that one product merges


@triton.jit
def _expand(
    parts_ptr, b_ptr, slots_ptr, tokens_ptr, y_ptr, scale, eps,
    N0: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, LAYERS: tl.constexpr, K: tl.constexpr, RANK: tl.constexpr,
    SLOT: tl.constexpr, SQUARES: tl.constexpr, SPLITS: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """y += scale * B shrunk, for tokens of one tile and columns of one layer. y: [tokens, N0 + N1 + N2]."""
    begin(PDL)
    tile, block = tl.program_id(0), tl.program_id(1)
    slot, token = read_tile(slots_ptr, tokens_ptr, tile, SIZE)
    if slot >= 0:
        width: tl.constexpr = N0 + N1 + N2
        blocks_0: tl.constexpr = (N0 + BLOCK_N - 1) // BLOCK_N  # not tl.cdiv: Triton 3.6 makes a tensor of it
        blocks_1: tl.constexpr = (N1 + BLOCK_N - 1) // BLOCK_N
        layer = (block >= blocks_0).to(tl.int32) + (block >= blocks_0 + blocks_1).to(tl.int32)
        start = tl.where(layer == 0, 0, tl.where(layer == 1, N0, N0 + N1))  # of the layer's columns
        end = tl.where(layer == 0, N0, tl.where(layer == 1, N0 + N1, width))
        before = tl.where(layer == 0, 0, tl.where(layer == 1, blocks_0, blocks_0 + blocks_1))
        column = start + (block - before) * BLOCK_N
        at, row = tl.arange(0, BLOCK_N), tl.arange(0, RANK)
        is_column = at < end - column
        inside = (token >= 0)[:, None] & is_column[None, :]
        y_at = y_ptr + column + (token.to(tl.int64)[:, None] * width + at[None, :])
        # All are asked for before the first is used.
        parts_ptr += (tile * LAYERS + layer).to(tl.int64) * (SPLITS * SIZE * (RANK + SQUARES))
        low = shrunk(parts_ptr, token, eps, K, RANK, SQUARES, SPLITS, SIZE)
        y = tl.load(y_at, mask=inside, other=0.0)
        b_ptr += slot.to(tl.int64) * SLOT + column * RANK
        b = tl.load(b_ptr + (at[:, None] * RANK + row[None, :]), mask=is_column[:, None], other=0.0)
        update = tl.dot(low.to(b.dtype), tl.trans(b), input_precision="ieee")
        tl.store(y_at, (y.to(tl.float32) + update * scale).to(y.dtype), mask=inside)


@triton.jit
def _expand_gated(
    parts_ptr, b_ptr, slots_ptr, tokens_ptr, y_ptr, out_ptr, eps,
    FFN: tl.constexpr, K: tl.constexpr, RANK: tl.constexpr, SLOT: tl.constexpr, SQUARES: tl.constexpr,
    SPLITS: tl.constexpr, SIZE: tl.constexpr, BLOCK_N: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """silu(gate) * up of y + B shrunk, and of y alone without an adapter. y: [tokens, 2 * FFN]; out: [tokens, FFN]."""
    begin(PDL)
    tile, column = tl.program_id(0), tl.program_id(1) * BLOCK_N
    slot, token = read_tile(slots_ptr, tokens_ptr, tile, SIZE)
    at, row = tl.arange(0, BLOCK_N), tl.arange(0, RANK)
    is_column = at < FFN - column
    inside = (token >= 0)[:, None] & is_column[None, :]
    wide = token.to(tl.int64)[:, None]
    y_at = y_ptr + column + (wide * (2 * FFN) + at[None, :])
    out_at = out_ptr + column + (wide * FFN + at[None, :])
    if slot >= 0:
        layer: tl.constexpr = SPLITS * SIZE * (RANK + SQUARES)
        parts_ptr += tile.to(tl.int64) * (2 * layer)
        low = shrunk(parts_ptr, token, eps, K, RANK, SQUARES, SPLITS, SIZE)
        up_low = shrunk(parts_ptr + layer, token, eps, K, RANK, SQUARES, SPLITS, SIZE)
        gate = tl.load(y_at, mask=inside, other=0.0)
        up = tl.load(y_at + FFN, mask=inside, other=0.0)
        b_at = b_ptr + slot.to(tl.int64) * SLOT + column * RANK + (at[:, None] * RANK + row[None, :])
        b = tl.load(b_at, mask=is_column[:, None], other=0.0)
        up_b = tl.load(b_at + FFN * RANK, mask=is_column[:, None], other=0.0)
        update = tl.dot(low.to(b.dtype), tl.trans(b), input_precision="ieee")
        up_update = tl.dot(up_low.to(b.dtype), tl.trans(up_b), input_precision="ieee")
        gate = (gate.to(tl.float32) + update).to(gate.dtype)
        up = (up.to(tl.float32) + up_update).to(up.dtype)
        tl.store(out_at, silu_times(gate, up), mask=inside)
    elif slot == -1:
        gate = tl.load(y_at, mask=inside, other=0.0)
        up = tl.load(y_at + FFN, mask=inside, other=0.0)
        tl.store(out_at, silu_times(gate, up), mask=inside)


def block_columns(num_rows: int) -> int:
    """Columns of y of a program: with few sequences many small programs, with many few that read parts more seldom.

    Not known from numbers of tokens, of which there is always one more that no kernel was compiled for.
    """
    return 64 if num_rows < 4 else 128 if num_rows < 32 else 256


def _shared_constants(stack: LoraStack, has_squares: bool, size: int) -> dict[str, Any]:
    k = stack.a.shape[-1]
    return {
        "K": k, "RANK": stack.rank, "SLOT": stack.b.stride(0), "SQUARES": has_squares, "SPLITS": num_splits(k),
        "SIZE": size,
    }  # fmt: skip


def expand_constants(stack: LoraStack, has_squares: bool, size: int, columns: int) -> dict[str, Any]:
    """The kernel's compile-time arguments."""
    nums_out = (*stack.nums_out, *[0] * (MAX_LAYERS - len(stack.nums_out)))
    return {
        **dict(zip(("N0", "N1", "N2"), nums_out, strict=True)), "LAYERS": len(stack.nums_out), "BLOCK_N": columns,
        **_shared_constants(stack, has_squares, size),
    }  # fmt: skip


def gated_constants(stack: LoraStack, has_squares: bool, size: int, columns: int) -> dict[str, Any]:
    """Likewise; half of the columns are the gate's."""
    return {"FFN": stack.nums_out[0], "BLOCK_N": columns // 2, **_shared_constants(stack, has_squares, size)}


def options(stack: LoraStack, size: int, columns: int) -> dict[str, Any]:
    """What the compiler is told besides: 64 sums a thread at most, and two programs of many threads on a processor."""
    if size * columns <= 64 * 128:
        return {"num_warps": 4}
    return {"num_warps": 8} | ({"maxnreg": 128} if stack.b.itemsize == 2 else {})


def expand(stack: LoraStack, tiles: Tiles, parts: Tensor, y: Tensor, scale: float, eps: float | None) -> Tensor:
    """y + scale * B A x, into y; parts: of A x, with squares where the norm's `eps` is given."""
    assert y.is_contiguous()
    columns = block_columns(tiles.num_rows)
    num_blocks = sum(triton.cdiv(num_out, columns) for num_out in stack.nums_out)
    _expand[(tiles.num_tiles, num_blocks)](
        parts, stack.b, tiles.slots, tiles.tokens, y, scale, eps or 0.0,
        **expand_constants(stack, eps is not None, tiles.size, columns), **options(stack, tiles.size, columns),
        **dependent(y.device, y.shape[:-1].numel()),
    )  # fmt: skip
    return y


def expand_gated(stack: LoraStack, tiles: Tiles, parts: Tensor, y: Tensor, eps: float | None) -> Tensor:
    """silu of the first half of y + B A x times the second; parts: likewise."""
    assert y.is_contiguous()
    ffn = y.shape[-1] // 2
    assert stack.nums_out == (ffn, ffn)
    columns, out = block_columns(tiles.num_rows), y.new_empty(*y.shape[:-1], ffn)
    _expand_gated[(tiles.num_tiles, triton.cdiv(ffn, columns // 2))](
        parts, stack.b, tiles.slots, tiles.tokens, y, out, eps or 0.0,
        **gated_constants(stack, eps is not None, tiles.size, columns), **options(stack, tiles.size, columns),
        **dependent(y.device, y.shape[:-1].numel()),
    )  # fmt: skip
    return out


def _add(stack: LoraStack, rows: Tensor, y: Tensor, x: Tensor, scale: float, eps: float | None) -> Tensor:
    tiles = tiles_of(stack, rows, x)
    return expand(stack, tiles, shrink(stack, tiles, x, eps is not None), y, scale, eps)


def _add_gated(stack: LoraStack, rows: Tensor, y: Tensor, x: Tensor, eps: float | None) -> Tensor:
    tiles = tiles_of(stack, rows, x)
    return expand_gated(stack, tiles, shrink(stack, tiles, x, eps is not None), y, eps)


# Ranks are 16, 32 or 64. Safe in CUDA graphs that also select the rows.
triton_lora = LoraKernel(_add, _add_gated)
