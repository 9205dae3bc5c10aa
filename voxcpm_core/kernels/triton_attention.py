"""Attention of prefixes over a paged KV cache as a Triton kernel; a decode step has its own.

The rows of one key-value head share a program: BLOCK_TOKENS query tokens of `heads / kv_heads` heads each. Where few
programs would run, the keys are split over several, which a second kernel sums (Dao et al., "Flash-Decoding", 2023).
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.triton_pdl import begin, dependent

MIN_ROWS = 16  # of a matrix product
MAX_ROWS = 64
BLOCK_KEYS = 64
MIN_KEYS_PER_SPLIT = 128  # splitting a short context costs more than it gains


@triton.jit
def _attend(
    q_ptr, k_ptr, v_ptr, out_ptr, sums_ptr, table_ptr, positions_ptr,
    num_tokens, table_stride, kv_stride, scale, keys_per_split,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_POW2: tl.constexpr, DIM: tl.constexpr, PAGE_SIZE: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr, BLOCK_KEYS: tl.constexpr, SPLITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One block of query tokens of one sequence and key-value head, over one split of the keys."""
    begin(PDL)
    num_blocks = tl.cdiv(num_tokens, BLOCK_TOKENS)
    sequence, block = tl.program_id(0) // num_blocks, tl.program_id(0) % num_blocks
    kv_head, split = tl.program_id(1), tl.program_id(2)
    rows = tl.arange(0, BLOCK_TOKENS * GROUP_POW2)
    token, member = block * BLOCK_TOKENS + rows // GROUP_POW2, rows % GROUP_POW2
    is_row = (token < num_tokens) & (member < GROUP)
    dims = tl.arange(0, DIM)
    row = ((sequence * num_tokens + token) * KV_HEADS + kv_head) * GROUP + member  # [rows], of q and out
    q = tl.load(q_ptr + row[:, None] * DIM + dims[None, :], mask=is_row[:, None], other=0.0)
    position = tl.load(positions_ptr + sequence * num_tokens + token, mask=is_row, other=-1)
    first = split * keys_per_split
    end = tl.max(position, axis=0) + 1
    end = tl.minimum(end, tl.where(split == SPLITS - 1, end, first + keys_per_split))
    largest = tl.full((BLOCK_TOKENS * GROUP_POW2,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_TOKENS * GROUP_POW2,), tl.float32)
    weighted = tl.zeros((BLOCK_TOKENS * GROUP_POW2, DIM), tl.float32)
    for start in range(first, end, BLOCK_KEYS):
        key = start + tl.arange(0, BLOCK_KEYS)
        is_key = key < end
        page = tl.load(table_ptr + sequence * table_stride + key // PAGE_SIZE, mask=is_key, other=0)
        at = (page * PAGE_SIZE + key % PAGE_SIZE) * kv_stride + kv_head * DIM
        k = tl.load(k_ptr + at[None, :] + dims[:, None], mask=is_key[None, :], other=0.0)  # [DIM, keys]
        v = tl.load(v_ptr + at[:, None] + dims[None, :], mask=is_key[:, None], other=0.0)  # [keys, DIM]
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(is_key[None, :] & (key[None, :] <= position[:, None]), scores, float("-inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=1))
        # A row that has seen no key yet has no largest score; any finite one does.
        base = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp2(scores - base[:, None])
        kept = tl.exp2(largest - base)
        total = total * kept + tl.sum(weights, axis=1)
        weighted = weighted * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = highest
    if SPLITS == 1:
        result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(out_ptr + row[:, None] * DIM + dims[None, :], result.to(out_ptr.dtype.element_ty), is_row[:, None])
    else:
        part = row * SPLITS + split
        tl.store(out_ptr + part[:, None] * DIM + dims[None, :], weighted, is_row[:, None])
        tl.store(sums_ptr + part * 2, largest, is_row)
        tl.store(sums_ptr + part * 2 + 1, total, is_row)


@triton.jit
def _combine(
    parts_ptr, sums_ptr, out_ptr, DIM: tl.constexpr, SPLITS: tl.constexpr, SPLITS_POW2: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One row: its splits, weighted by how much of the softmax each holds."""
    begin(PDL)
    row = tl.program_id(0)
    splits, dims = tl.arange(0, SPLITS_POW2), tl.arange(0, DIM)
    is_split = splits < SPLITS
    part = row * SPLITS + splits
    largest = tl.load(sums_ptr + part * 2, mask=is_split, other=float("-inf"))
    total = tl.load(sums_ptr + part * 2 + 1, mask=is_split, other=0.0)
    share = tl.exp2(largest - tl.max(largest, axis=0))  # split 0 holds position 0, which every row sees
    weighted = tl.load(parts_ptr + part[:, None] * DIM + dims[None, :], mask=is_split[:, None], other=0.0)
    result = tl.sum(weighted * share[:, None], axis=0) / tl.sum(total * share, axis=0)
    tl.store(out_ptr + row * DIM + dims, result.to(out_ptr.dtype.element_ty))


class Splits(NamedTuple):
    """How the keys of a sequence are shared out. Of the batch's size alone, so that graphs stay as they are."""

    count: int
    keys: int  # of each


def block_keys(dtype: torch.dtype) -> int:
    """Keys of one pass: as many as fit into the shared memory of every supported GPU."""
    return BLOCK_KEYS if dtype.itemsize <= 2 else BLOCK_KEYS // 2


def splits_for(num_programs: int, max_keys: int, num_processors: int) -> Splits:
    """As many splits as fill the device, of at least MIN_KEYS_PER_SPLIT keys."""
    count = max(1, min(num_processors // num_programs, -(-max_keys // MIN_KEYS_PER_SPLIT)))
    keys = -(-max_keys // count)
    keys = -(-keys // BLOCK_KEYS) * BLOCK_KEYS
    return Splits(-(-max_keys // keys), keys)


@cache
def num_processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1  # the interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count


def triton_paged_attention(q: Tensor, k_pages: Tensor, v_pages: Tensor, context: PagedContext) -> Tensor:
    """`paged_attention`; what is launched depends on shapes alone, not on `max_context`."""
    return attend(q, k_pages, v_pages, context.page_table, context.positions, num_processors(q.device))


def attend(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, positions: Tensor, num_processors: int
) -> Tensor:
    """Causal grouped-query attention of each query over its sequence's cache up to its own position.

    q: [B, T, heads, head_dim]; k_pages, v_pages: [num_pages, page_size, kv_heads, head_dim]; page_table: int64
    [B, max_pages], which may have a row stride; positions: int64 [B, T]. Returns [B, T, heads, head_dim]. head_dim is a
    power of two of at least 16.
    """
    q, positions = q.contiguous(), positions.contiguous()
    batch, num_tokens, num_heads, head_dim = q.shape
    page_size, kv_heads = k_pages.shape[1:3]
    group = num_heads // kv_heads
    group_pow2 = triton.next_power_of_2(group)
    block_tokens = min(triton.next_power_of_2(num_tokens), max(1, MAX_ROWS // group_pow2))
    block_tokens = max(block_tokens, MIN_ROWS // group_pow2, 1)
    num_blocks = triton.cdiv(num_tokens, block_tokens)
    # Keys that were there before are few: they all go to the last split.
    splits = splits_for(batch * num_blocks * kv_heads, num_tokens, num_processors)
    out = torch.empty_like(q)
    rows = batch * num_tokens * num_heads
    partial = out if splits.count == 1 else q.new_empty(rows, splits.count, head_dim, dtype=torch.float32)
    sums = q.new_empty(rows * splits.count * 2, dtype=torch.float32)
    _attend[(batch * num_blocks, kv_heads, splits.count)](
        q, k_pages, v_pages, partial, sums, page_table, positions,
        num_tokens, page_table.stride(0), kv_heads * head_dim, math.log2(math.e) / math.sqrt(head_dim), splits.keys,
        KV_HEADS=kv_heads, GROUP=group, GROUP_POW2=group_pow2, DIM=head_dim, PAGE_SIZE=page_size,
        BLOCK_TOKENS=block_tokens, BLOCK_KEYS=block_keys(q.dtype), SPLITS=splits.count,
        **dependent(q.device, batch * num_tokens),
    )  # fmt: skip
    if splits.count > 1:
        _combine[(rows,)](
            partial, sums, out, DIM=head_dim, SPLITS=splits.count, SPLITS_POW2=triton.next_power_of_2(splits.count),
            **dependent(q.device, batch * num_tokens),
        )  # fmt: skip
    return out
