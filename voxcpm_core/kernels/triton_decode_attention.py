"""Rope, storing of keys and values, and attention over the paged cache for one new token a sequence, in one go.

A unit has the heads of one sequence that share a key-value head, and every so many-th block of the keys that were there
before. The new key need not be read back: the first split begins with it. Where there are several splits with keys, the
one that arrives last sums them in a fixed order (Dao et al., "Flash-Decoding", 2023).
"""

from __future__ import annotations

import triton
import triton.language as tl

from voxcpm_core.kernels.triton_local_attention import rotated


@triton.jit
def decode_unit(
    qkv_ptr, cos_ptr, sin_ptr, out_ptr, k_ptr, v_ptr, table_ptr, positions_ptr, parts_ptr, counters_ptr,
    row, kv_head, split, most_splits, table_stride, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr,
    SIDE: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_KEYS: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    """qkv: [B, q + 2 kv]; k, v: pages of one layer; out: [B, q]; cos, sin: [B, head_dim]; row: int64, a sequence.

    parts: fp32, most_splits * ROWS * (head_dim + 2) for each key-value head of each sequence; counters: a zero each.
    """
    width: tl.constexpr = (HEADS + 2 * KV_HEADS) * 2 * HALF
    table_ptr += row * table_stride
    member, dims = tl.arange(0, ROWS), tl.arange(0, 2 * HALF)
    is_row = member < GROUP
    position = tl.load(positions_ptr + row).to(tl.int32)
    num_blocks = tl.cdiv(position, BLOCK_KEYS)
    num_splits = tl.maximum(tl.minimum(num_blocks, most_splits), 1)
    if split < num_splits:
        token = tl.zeros((ROWS,), tl.int32) + row.to(tl.int32)
        query_at = row * width + (kv_head * GROUP + member) * (2 * HALF)
        q1, q2 = rotated(qkv_ptr, cos_ptr, sin_ptr, query_at, token, is_row, HALF, SIDE, ROPE)
        largest = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        weighted = tl.zeros((ROWS, 2 * HALF), tl.float32)
        if split == 0:
            # The same key in each row, as a product with each query.
            key_at = row * width + (HEADS + kv_head + 0 * member) * (2 * HALF)
            k1, k2 = rotated(qkv_ptr, cos_ptr, sin_ptr, key_at, token, is_row, HALF, SIDE, ROPE)
            v = tl.load(qkv_ptr + row * width + (HEADS + KV_HEADS + kv_head) * (2 * HALF) + dims)
            page = tl.load(table_ptr + position // PAGE_SIZE)
            slot = ((page * PAGE_SIZE + position % PAGE_SIZE) * KV_HEADS + kv_head) * (2 * HALF)
            side = tl.arange(0, SIDE)
            once = (member == 0)[:, None] & (side < HALF)[None, :]
            same = (slot + 0 * member)[:, None] + side[None, :]
            tl.store(k_ptr + same, k1, mask=once)
            tl.store(k_ptr + same + HALF, k2, mask=once)
            tl.store(v_ptr + slot + dims, v)
            products = q1.to(tl.float32) * k1.to(tl.float32) + q2.to(tl.float32) * k2.to(tl.float32)
            largest = tl.sum(products, axis=1) * scale
            total += 1.0
            weighted += v.to(tl.float32)[None, :]
        largest, total, weighted = _attended(
            q1, q2, k_ptr, v_ptr, table_ptr, largest, total, weighted, position, split, most_splits,
            num_blocks, kv_head, scale, KV_HEADS, HALF, SIDE, PAGE_SIZE, BLOCK_KEYS,
        )  # fmt: skip
        out_ptr += row * (HEADS * 2 * HALF) + kv_head * (GROUP * 2 * HALF)
        if num_splits == 1:
            _finish(weighted, total, out_ptr, is_row, ROWS, HALF)
        else:
            number = row * KV_HEADS + kv_head
            parts_ptr += number * (most_splits * (ROWS * (2 * HALF + 2)))
            _store_part(parts_ptr + split * (ROWS * (2 * HALF + 2)), largest, total, weighted, ROWS, HALF)
            tl.debug_barrier()  # all threads' stores come before the count, which one thread does
            if tl.atomic_add(counters_ptr + number, 1, sem="acq_rel") == num_splits - 1:
                total, weighted = _summed_parts(parts_ptr, num_splits, ROWS, HALF)
                _finish(weighted, total, out_ptr, is_row, ROWS, HALF)
                tl.store(counters_ptr + number, 0)


@triton.jit
def _attended(
    q1, q2, k_ptr, v_ptr, table_ptr, largest, total, weighted, position, split, most_splits,
    num_blocks, kv_head, scale,
    KV_HEADS: tl.constexpr, HALF: tl.constexpr, SIDE: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    """The split's blocks of keys before `position`, on top of what it begins with."""
    side, dims = tl.arange(0, SIDE), tl.arange(0, 2 * HALF)
    for block in range(split, num_blocks, most_splits):
        key = block * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
        is_key = key < position
        page = tl.load(table_ptr + key // PAGE_SIZE, mask=is_key, other=0)
        at = ((page * PAGE_SIZE + key % PAGE_SIZE) * KV_HEADS + kv_head) * (2 * HALF)
        half_at, mask = at[None, :] + side[:, None], is_key[None, :] & (side < HALF)[:, None]
        k1 = tl.load(k_ptr + half_at, mask=mask, other=0.0)  # [SIDE, keys]
        k2 = tl.load(k_ptr + half_at + HALF, mask=mask, other=0.0)
        v = tl.load(v_ptr + at[:, None] + dims[None, :], mask=is_key[:, None], other=0.0)  # [keys, head_dim]
        scores = tl.dot(q1, k1, input_precision="ieee")
        scores = tl.dot(q2, k2, scores, input_precision="ieee") * scale
        scores = tl.where(is_key[None, :], scores, float("-inf"))
        highest = tl.maximum(largest, tl.max(scores, axis=1))  # of each block some key is there
        weights, kept = tl.exp2(scores - highest[:, None]), tl.exp2(largest - highest)
        total = total * kept + tl.sum(weights, axis=1)
        weighted = weighted * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = highest
    return largest, total, weighted


@triton.jit
def _finish(weighted, total, out_ptr, is_row, ROWS: tl.constexpr, HALF: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * (2 * HALF) + tl.arange(0, 2 * HALF)[None, :]
    tl.store(out_ptr + at, (weighted / total[:, None]).to(out_ptr.dtype.element_ty), mask=is_row[:, None])


@triton.jit
def _store_part(part_ptr, largest, total, weighted, ROWS: tl.constexpr, HALF: tl.constexpr):
    rows = tl.arange(0, ROWS)
    tl.store(part_ptr + rows[:, None] * (2 * HALF) + tl.arange(0, 2 * HALF)[None, :], weighted)
    tl.store(part_ptr + ROWS * 2 * HALF + rows, largest)
    tl.store(part_ptr + ROWS * (2 * HALF + 1) + rows, total)


@triton.jit
def _summed_parts(part_ptr, num_splits, ROWS: tl.constexpr, HALF: tl.constexpr):
    """All splits' in their order, read past the L1 cache, which does not see other processors' stores."""
    rows = tl.arange(0, ROWS)
    at = rows[:, None] * (2 * HALF) + tl.arange(0, 2 * HALF)[None, :]
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS, 2 * HALF), tl.float32)
    for _ in range(num_splits):
        part_largest = tl.load(part_ptr + ROWS * 2 * HALF + rows, cache_modifier=".cg")
        highest = tl.maximum(largest, part_largest)  # the first part's is finite
        kept, share = tl.exp2(largest - highest), tl.exp2(part_largest - highest)
        total = total * kept + tl.load(part_ptr + ROWS * (2 * HALF + 1) + rows, cache_modifier=".cg") * share
        weighted = weighted * kept[:, None] + tl.load(part_ptr + at, cache_modifier=".cg") * share[:, None]
        largest = highest
        part_ptr += ROWS * (2 * HALF + 2)
    return total, weighted
