"""A x for tiles of tokens that share an adapter: K is split over programs, whose parts the next kernel sums.

Few programs that read all of K would wait for memory pass after pass. In how many it is split is known from K alone, so
that a token's sums do not depend on the batch.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.lora import LoraStack
from voxcpm_core.kernels.triton_lora_tiles import Tiles, read_tile
from voxcpm_core.kernels.triton_pdl import begin, dependent

K_BYTES = 256  # of a row of x or A that a pass reads
K_PER_SPLIT = 512  # values: what a program asks for at once
MAX_SPLITS = 8  # the next kernel's programs read them all
SHARED_BYTES = 96 * 1024  # of a program; every supported GPU has as much
MAX_STAGES = 5  # with which a whole split of a small tile is under way at once


@triton.jit
def _shrink(
    x_ptr, a_ptr, slots_ptr, tokens_ptr, parts_ptr,
    K: tl.constexpr, RANK: tl.constexpr, LAYERS: tl.constexpr, SLOT: tl.constexpr, SQUARES: tl.constexpr,
    SPLITS: tl.constexpr, SIZE: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Of one layer, over a split of K. x: [tokens, K]; a: slots SLOT values apart; parts: see `shrink`."""
    begin(PDL)
    tile, layer, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    slot, token = read_tile(slots_ptr, tokens_ptr, tile, SIZE)
    if slot >= 0:
        # Not tl.cdiv: Triton 3.6 makes a tensor of it.
        per_split: tl.constexpr = (K + BLOCK_K * SPLITS - 1) // (BLOCK_K * SPLITS) * BLOCK_K
        first = split * per_split
        is_token, row, at = (token >= 0)[:, None], tl.arange(0, RANK), tl.arange(0, BLOCK_K)
        x_rows = x_ptr + token.to(tl.int64)[:, None] * K
        a_ptr += slot.to(tl.int64) * SLOT + layer * (RANK * K)
        acc = tl.zeros((SIZE, RANK), tl.float32)
        squares = tl.zeros((SIZE, BLOCK_K), tl.float32)
        for k in range(first, tl.minimum(first + per_split, K), BLOCK_K):
            inside = (k + at < K)[None, :]
            x = tl.load(x_rows + (k + at)[None, :], mask=is_token & inside, other=0.0)
            a = tl.load(a_ptr + k + (row[:, None] * K + at[None, :]), mask=inside, other=0.0)
            if SQUARES:
                squares += x.to(tl.float32) * x.to(tl.float32)
            acc = tl.dot(x, tl.trans(a), acc, input_precision="ieee")
        part: tl.constexpr = SIZE * (RANK + SQUARES)
        parts_ptr += ((tile * LAYERS + layer) * SPLITS + split).to(tl.int64) * part
        tl.store(parts_ptr + (tl.arange(0, SIZE)[:, None] * RANK + row[None, :]), acc, mask=is_token)
        if SQUARES:
            tl.store(parts_ptr + SIZE * RANK + tl.arange(0, SIZE), tl.sum(squares, axis=1), mask=token >= 0)


@triton.jit
def shrunk(
    parts_ptr, token, eps,
    K: tl.constexpr, RANK: tl.constexpr, SQUARES: tl.constexpr, SPLITS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """All splits' parts of a tile's layer, in their order, scaled where there are squares: float32 [SIZE, RANK]."""
    part: tl.constexpr = SIZE * (RANK + SQUARES)
    token_at, splits = tl.arange(0, SIZE), tl.arange(0, SPLITS) * part
    at = splits[:, None, None] + token_at[None, :, None] * RANK + tl.arange(0, RANK)[None, None, :]
    acc = tl.sum(tl.load(parts_ptr + at, mask=(token >= 0)[None, :, None], other=0.0), axis=0)
    if SQUARES:
        squares = tl.zeros((SIZE,), tl.float32)
        for split in tl.static_range(SPLITS):
            squares += tl.load(parts_ptr + split * part + SIZE * RANK + token_at, mask=token >= 0, other=0.0)
        acc *= tl.rsqrt(squares / K + eps)[:, None]
    return acc


def num_splits(k: int) -> int:
    """A power of two."""
    return 1 << min(MAX_SPLITS, max(1, k // K_PER_SPLIT)).bit_length() - 1


def constants(stack: LoraStack, has_squares: bool, size: int) -> dict[str, Any]:
    """The kernel's compile-time arguments for tiles of so many tokens."""
    return {
        "K": stack.a.shape[-1], "RANK": stack.rank, "LAYERS": len(stack.nums_out), "SLOT": stack.a.stride(0),
        "SQUARES": has_squares, "SPLITS": num_splits(stack.a.shape[-1]), "SIZE": size,
        "BLOCK_K": K_BYTES // stack.a.itemsize,
    }  # fmt: skip


def options(stack: LoraStack, size: int) -> dict[str, Any]:
    """What the compiler is told besides."""
    return {"num_warps": 4, "num_stages": min(MAX_STAGES, SHARED_BYTES // ((size + stack.rank) * K_BYTES))}


def shrink(stack: LoraStack, tiles: Tiles, x: Tensor, has_squares: bool) -> Tensor:
    """The parts of A x, written where tiles have an adapter. x: [N, ..., in].

    A part is sums [size, rank] and, if wanted, squares of x [size]. They go by tile, layer and split.
    """
    x = x.contiguous()
    num_layers, splits = len(stack.nums_out), num_splits(x.shape[-1])
    num_parts, part_size = tiles.num_tiles * num_layers * splits, tiles.size * (stack.rank + has_squares)
    parts = x.new_empty(num_parts * part_size, dtype=torch.float32)
    _shrink[(tiles.num_tiles, num_layers, splits)](
        x, stack.a, tiles.slots, tiles.tokens, parts, **constants(stack, has_squares, tiles.size),
        **options(stack, tiles.size), **dependent(x.device, x.shape[:-1].numel()),
    )  # fmt: skip
    return parts
