"""Attention of a decode step, of one new token a sequence, as one Triton kernel: rope, storing, attending.

A program holds the queries of one sequence that share a key-value head, over one split of the keys; the split that
arrives last sums them all in their order. No program reads a key or value that another writes: the new ones are in
registers, and what is stored of them is for later steps.

How many splits there may be depends on the size of the batch; how many there are, on the sequence's own position.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.triton_attention import MIN_KEYS_PER_SPLIT, MIN_ROWS, block_keys, splits_for
from voxcpm_core.kernels.triton_new_token import new_token
from voxcpm_core.kernels.triton_pdl import begin, dependent

PARTS_AT_ONCE = 4  # asked for by the program that sums them
# More stages pay with thousands of keys alone: with few, asking ahead for what is not there costs more than it hides.
OPTIONS = {"num_warps": 2, "num_stages": 2}


@triton.jit
def _attended(
    q, largest, total, weighted, k_ptr, v_ptr, table_ptr, first, end, scale,
    KV_STRIDE: tl.constexpr, DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    """What was there, with the cached keys `first` to `end`; `k_ptr` and `v_ptr` point to the head in slot 0."""
    dims = tl.arange(0, DIM)
    for start in range(first, end, BLOCK_KEYS):
        key = start + tl.arange(0, BLOCK_KEYS)
        is_key = key < end
        page = tl.load(table_ptr + key // PAGE_SIZE, mask=is_key, other=0)
        at = (page * PAGE_SIZE + key % PAGE_SIZE) * KV_STRIDE
        k = tl.load(k_ptr + at[None, :] + dims[:, None], mask=is_key[None, :], other=0.0)  # [DIM, keys]
        v = tl.load(v_ptr + at[:, None] + dims[None, :], mask=is_key[:, None], other=0.0)  # [keys, DIM]
        scores = tl.where(is_key[None, :], tl.dot(q, k, input_precision="ieee") * scale, float("-inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=1))  # finite: each pass has a key
        weights = tl.exp2(scores - highest[:, None])
        kept = tl.exp2(largest - highest)
        total = total * kept + tl.sum(weights, axis=1)
        weighted = weighted * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = highest
    return largest, total, weighted


@triton.jit
def _summed_parts(
    parts_ptr, sums_ptr, num_parts, rows, is_row, GROUP: tl.constexpr, DIM: tl.constexpr, AT_ONCE: tl.constexpr
):
    """All parts in their order, read past the L1 cache, which does not see other processors' stores."""
    largest = tl.zeros_like(rows).to(tl.float32) - float("inf")
    total = tl.zeros_like(largest)
    weighted = tl.zeros_like(largest)[:, None] + tl.zeros((1, DIM), tl.float32)
    for start in range(0, num_parts, AT_ONCE):
        for part in tl.static_range(AT_ONCE):  # all asked for before any is used
            is_part = start + part < num_parts
            row, mask = (start + part) * GROUP + rows, is_row & is_part
            part_largest = tl.load(sums_ptr + row * 2, mask=mask, other=0.0, cache_modifier=".cg")
            part_total = tl.load(sums_ptr + row * 2 + 1, mask=mask, other=1.0, cache_modifier=".cg")
            at = row[:, None] * DIM + tl.arange(0, DIM)[None, :]
            part_weighted = tl.load(parts_ptr + at, mask=mask[:, None], other=0.0, cache_modifier=".cg")
            part_largest = tl.where(is_part, part_largest, float("-inf"))
            highest = tl.maximum(largest, part_largest)
            kept, share = tl.exp2(largest - highest), tl.exp2(part_largest - highest)
            total = total * kept + part_total * share
            weighted = weighted * kept[:, None] + part_weighted * share[:, None]
            largest = highest
    return total, weighted


@triton.jit
def _joined(
    largest, total, weighted, parts_ptr, sums_ptr, counter_ptr, part, num_parts, rows, is_row,
    GROUP: tl.constexpr, DIM: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Store a part; where it is the last to arrive, give the sums of all, and True."""
    row = part * GROUP + rows
    tl.store(parts_ptr + row[:, None] * DIM + tl.arange(0, DIM)[None, :], weighted, mask=is_row[:, None])
    tl.store(sums_ptr + row * 2, largest, mask=is_row)
    tl.store(sums_ptr + row * 2 + 1, total, mask=is_row)
    tl.debug_barrier()  # all threads' stores come before the count, which one thread does
    arrived_last = tl.atomic_add(counter_ptr, 1, sem="acq_rel") == num_parts - 1
    if arrived_last:
        total, weighted = _summed_parts(parts_ptr, sums_ptr, num_parts, rows, is_row, GROUP, DIM, AT_ONCE)
        tl.store(counter_ptr, 0)
    return total, weighted, arrived_last


@triton.jit
def _decode(
    qkv_ptr, x_ptr, cos_ptr, sin_ptr, k_ptr, v_ptr, out_ptr, parts_ptr, sums_ptr, counters_ptr, table_ptr,
    positions_ptr, table_stride, scale, eps,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, DIM: tl.constexpr, PAGE_SIZE: tl.constexpr,
    BLOCK_KEYS: tl.constexpr, MIN_KEYS: tl.constexpr, SPLITS: tl.constexpr, AT_ONCE: tl.constexpr,
    HIDDEN: tl.constexpr, WIDTH: tl.constexpr, ROPE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """HIDDEN: of x, 0 where the norm was taken before; ROWS: at least GROUP; SPLITS: as many parts at most."""
    begin(PDL)
    sequence, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    position = tl.load(positions_ptr + sequence).to(tl.int32)
    table_ptr += sequence * table_stride
    rows, dims = tl.arange(0, ROWS), tl.arange(0, DIM)[None, :]
    is_row, head = rows < GROUP, kv_head * GROUP + rows
    q, k, v = new_token(
        qkv_ptr + sequence * ((GROUP + 2) * KV_HEADS * DIM), x_ptr + sequence * HIDDEN, cos_ptr + sequence * DIM,
        sin_ptr + sequence * DIM, head * DIM, (KV_HEADS * GROUP + kv_head) * DIM, is_row, eps,
        KV_HEADS * DIM, DIM, HIDDEN, WIDTH, ROPE,
    )  # fmt: skip
    own_page = tl.load(table_ptr + position // PAGE_SIZE)
    keys = tl.maximum(tl.cdiv(position, SPLITS * BLOCK_KEYS) * BLOCK_KEYS, MIN_KEYS)  # of a part, but the last
    num_parts = tl.maximum(tl.cdiv(position, keys), 1)
    is_last = split == num_parts - 1  # which has the fewest keys, and the new one
    if split < num_parts:
        largest = tl.where(is_last, tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1) * scale, float("-inf"))
        total = tl.where(is_last, tl.full((ROWS,), 1.0, tl.float32), 0.0)
        weighted = tl.where(is_last, v.to(tl.float32), 0.0)
        largest, total, weighted = _attended(
            q, largest, total, weighted, k_ptr + kv_head * DIM, v_ptr + kv_head * DIM, table_ptr,
            split * keys, tl.minimum(split * keys + keys, position), scale,
            KV_HEADS * DIM, DIM, PAGE_SIZE, BLOCK_KEYS,
        )  # fmt: skip
        if is_last:
            slot = ((own_page * PAGE_SIZE + position % PAGE_SIZE) * KV_HEADS + kv_head) * DIM
            place, once = slot + rows[:, None] * 0 + dims, (rows == 0)[:, None]
            tl.store(k_ptr + place, k, mask=once)
            tl.store(v_ptr + place, v, mask=once)
        finishes = is_last
        if SPLITS > 1 and num_parts > 1:
            number = sequence * KV_HEADS + kv_head
            total, weighted, finishes = _joined(
                largest, total, weighted, parts_ptr + number * (SPLITS * GROUP * DIM),
                sums_ptr + number * (SPLITS * GROUP * 2), counters_ptr + number, split, num_parts, rows, is_row,
                GROUP, DIM, AT_ONCE,
            )  # fmt: skip
        out_at = (sequence * (KV_HEADS * GROUP) + head)[:, None] * DIM + dims
        result = (weighted / total[:, None]).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + out_at, result, mask=is_row[:, None] & finishes)


def decode_attention(
    qkv: Tensor, x: Tensor | None, eps: float, config: TransformerConfig, rotation: Rotation | None, pages: Tensor,
    context: PagedContext, counters: Tensor, num_processors: int,
) -> Tensor:
    """Rope, store the new keys and values, and attend to all up to each row's own: [B, 1, q + 2 kv] -> [B, 1, q].

    x: [B, 1, hidden] if qkv is the product of it (times the norm's weight) and not of its RMS norm, which is then taken
    here, with `eps`; pages: [2, num_pages, page_size, kv_heads, head_dim], one layer's; counters: zeros, which are left
    so (`new_counters`). The page table may have a row stride. head_dim is a power of two of at least 16. Safe in a CUDA
    graph: what is launched depends on shapes and `num_processors` alone.
    """
    batch, kv_heads, dim = qkv.shape[0], config.num_kv_heads, config.head_dim
    page_size = context.page_size
    assert qkv.shape[1:] == (1, config.q_size + 2 * config.kv_size)
    assert pages.shape[2:] == (page_size, kv_heads, dim)
    qkv = qkv.contiguous()
    hidden = 0 if x is None else x.shape[-1]
    x = qkv if x is None else x.contiguous()
    cos, sin = (qkv, qkv) if rotation is None else (part.contiguous() for part in rotation)
    splits = splits_for(batch * kv_heads, context.page_table.shape[1] * page_size, num_processors).count
    out = qkv.new_empty(batch, 1, config.q_size)
    parts = sums = out
    if splits > 1:
        assert batch * kv_heads <= counters.numel()
        parts = qkv.new_empty(batch * config.num_heads * splits, dim, dtype=torch.float32)
        sums = qkv.new_empty(batch * config.num_heads * splits, 2, dtype=torch.float32)
    _decode[(batch, kv_heads, splits)](
        qkv, x, cos, sin, pages[0], pages[1], out, parts, sums, counters, context.page_table,
        context.positions.contiguous(), context.page_table.stride(0), math.log2(math.e) / math.sqrt(dim), eps,
        **constants(config, qkv.dtype, page_size, splits, hidden, rotation is not None),
        **OPTIONS, **dependent(qkv.device, batch),
    )  # fmt: skip
    return out


def constants(
    config: TransformerConfig, dtype: torch.dtype, page_size: int, splits: int, hidden: int, rope: bool
) -> dict[str, int | bool]:
    """The kernel's compile-time arguments; hidden: of x, 0 without."""
    group = config.num_heads // config.num_kv_heads
    return {
        "KV_HEADS": config.num_kv_heads, "GROUP": group, "ROWS": max(triton.next_power_of_2(group), MIN_ROWS),
        "DIM": config.head_dim, "PAGE_SIZE": page_size, "BLOCK_KEYS": block_keys(dtype),
        "MIN_KEYS": MIN_KEYS_PER_SPLIT, "SPLITS": splits, "AT_ONCE": PARTS_AT_ONCE, "HIDDEN": hidden,
        "WIDTH": triton.next_power_of_2(hidden) if hidden else 1, "ROPE": rope,
    }  # fmt: skip
