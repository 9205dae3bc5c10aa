"""Which tokens a program of the adapters' kernels takes: a tile of those that have one adapter, whosever they are.

So an adapter's A and B are read once for a tile, not once for a sequence. What a batch's rows make of it is worked out
on the device, once for all products of so many tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.lora import LoraStack
from voxcpm_core.kernels.triton_pdl import begin, dependent

MIN_TILE, FULL_TILE = 16, 64  # tokens; a matrix product's side, and as Hopper's have at least
FEW_TOKENS = 4  # of a sequence: full tiles would be waste where adapters have a sequence or two each
CHUNK = 64  # rows that are looked at together


@dataclass(frozen=True)
class Tiles:
    """Every token is in one tile, beside others of its own adapter, or of none; the last tiles may be empty."""

    slots: Tensor  # int32 [num_tiles]: its adapter's; -1 for tokens that have none, -2 for no tokens
    tokens: Tensor  # int32 [num_tiles, size]: places in [N, num_tokens] as one dimension; -1 fills up
    num_rows: int  # of the batch, which N repeats

    @property
    def num_tiles(self) -> int:
        return self.tokens.shape[0]

    @property
    def size(self) -> int:
        return self.tokens.shape[1]


@triton.jit
def _groups(rows_ptr, at, num_rows, NUM_SLOTS: tl.constexpr, GROUPS: tl.constexpr):
    """Of some rows: the slots, and one more for those who have none; nobody's behind the last row."""
    slot = tl.load(rows_ptr + at, mask=at < num_rows, other=GROUPS + 1)
    return tl.where(slot < 0, NUM_SLOTS, slot).to(tl.int32)


@triton.jit(
    do_not_specialize=["num_rows", "num_copies", "num_tokens"], do_not_specialize_on_alignment=["rows_ptr"]
)
def _tile(
    rows_ptr, slots_ptr, tokens_ptr, num_rows, num_copies, num_tokens,
    NUM_SLOTS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One tile. Groups follow one another, and each begins with a tile of its own."""
    begin(PDL)
    tile = tl.program_id(0)
    groups = tl.arange(0, GROUPS)
    sizes = tl.zeros((GROUPS,), tl.int32)  # in rows
    for start in range(0, num_rows, CHUNK):
        found = _groups(rows_ptr, start + tl.arange(0, CHUNK), num_rows, NUM_SLOTS, GROUPS)
        sizes += tl.sum((found[None, :] == groups[:, None]).to(tl.int32), axis=1)
    per_row = num_copies * num_tokens
    tiles = (sizes * per_row + SIZE - 1) // SIZE
    group = tl.sum((tl.cumsum(tiles, axis=0) <= tile).to(tl.int32), axis=0)  # GROUPS behind the last tile
    first = tl.sum(tl.where(groups < group, tiles, 0), axis=0)
    place = (tile - first) * SIZE + tl.arange(0, SIZE)  # among the group's tokens
    member = place // per_row  # among its rows
    row, num_members = tl.zeros((SIZE,), tl.int32), 0
    for start in range(0, num_rows, CHUNK):
        at = start + tl.arange(0, CHUNK)
        is_member = (_groups(rows_ptr, at, num_rows, NUM_SLOTS, GROUPS) == group).to(tl.int32)
        number = tl.where(is_member > 0, num_members + tl.cumsum(is_member, axis=0) - 1, -1)
        row += tl.sum(tl.where(number[None, :] == member[:, None], at[None, :], 0), axis=1)
        num_members += tl.sum(is_member, axis=0)
    copy, token = place % per_row // num_tokens, place % num_tokens
    token += (copy * num_rows + row) * num_tokens
    tl.store(tokens_ptr + tile * SIZE + tl.arange(0, SIZE), tl.where(member < num_members, token, -1))
    tl.store(slots_ptr + tile, tl.where(group < NUM_SLOTS, group, tl.where(num_members > 0, -1, -2)))


@triton.jit
def read_tile(slots_ptr, tokens_ptr, tile, SIZE: tl.constexpr):
    """Its slot and its tokens [SIZE]; both are on their way before a program asks which slot it is."""
    slot = tl.load(slots_ptr + tile)
    token = tl.load(tokens_ptr + tile * SIZE + tl.arange(0, SIZE))
    tl.debug_barrier()  # else the compiler asks for the tokens where they are used, behind that question
    return slot, token


def tile_size(num_tokens: int) -> int:
    """Known from the tokens of a sequence alone, so that its sums do not depend on who else is in the batch."""
    return MIN_TILE if num_tokens <= FEW_TOKENS else FULL_TILE


def constants(num_slots: int, size: int) -> dict[str, Any]:
    """The kernel's compile-time arguments."""
    return {
        "NUM_SLOTS": num_slots, "GROUPS": triton.next_power_of_2(num_slots + 1), "SIZE": size, "CHUNK": CHUNK
    }  # fmt: skip


def tiles_of(stack: LoraStack, rows: Tensor, x: Tensor) -> Tiles:
    """Of x [N, ..., in], whose sequences repeat the rows selected. Safe in a CUDA graph in which they are selected."""
    num_sequences, num_tokens = x.shape[0], x.shape[1:-1].numel()
    derived, key = stack.selection.derived, (num_sequences, num_tokens)
    if key not in derived:
        derived[key] = make_tiles(rows, stack.a.shape[0], num_sequences, num_tokens)
    tiles: Tiles = derived[key]
    return tiles


def make_tiles(rows: Tensor, num_slots: int, num_sequences: int, num_tokens: int) -> Tiles:
    """rows: int64 [B], slots, -1 for none; N is a multiple of B."""
    assert rows.is_contiguous()
    assert num_sequences % len(rows) == 0
    size, num_groups = tile_size(num_tokens), min(len(rows), num_slots + 1)
    num_tiles = triton.cdiv(num_sequences * num_tokens, size) + num_groups - 1  # each group's last may be filled up
    slots = torch.empty(num_tiles, dtype=torch.int32, device=rows.device)
    tokens = torch.empty(num_tiles, size, dtype=torch.int32, device=rows.device)
    _tile[(num_tiles,)](
        rows, slots, tokens, len(rows), num_sequences // len(rows), num_tokens,
        **constants(num_slots, size), **dependent(rows.device, num_sequences * num_tokens),
    )  # fmt: skip
    return Tiles(slots, tokens, len(rows))
