"""Rope of new rows, and their keys and values into the paged cache, as one Triton kernel."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.triton_pdl import begin, dependent


@triton.jit
def turned(first, second, cos_ptr, sin_ptr, angle, mask, HALF: tl.constexpr):
    """Both halves of some heads, turned in fp32 and rounded back; angle: where the first half's cos and sin stand."""
    cos1 = tl.load(cos_ptr + angle, mask=mask, other=0.0).to(tl.float32)
    cos2 = tl.load(cos_ptr + angle + HALF, mask=mask, other=0.0).to(tl.float32)
    sin1 = tl.load(sin_ptr + angle, mask=mask, other=0.0).to(tl.float32)
    sin2 = tl.load(sin_ptr + angle + HALF, mask=mask, other=0.0).to(tl.float32)
    wide1, wide2 = first.to(tl.float32), second.to(tl.float32)
    return (wide1 * cos1 - wide2 * sin1).to(first.dtype), (wide2 * cos2 + wide1 * sin2).to(second.dtype)


@triton.jit
def _store(
    qkv_ptr, cos_ptr, sin_ptr, q_ptr, k_ptr, v_ptr, table_ptr, positions_ptr, num_tokens, table_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, PAGE_SIZE: tl.constexpr, NUM_ROTATED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One head of one row: a query's goes to q, a key's or value's into its page."""
    begin(PDL)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dims = tl.arange(0, HALF)
    at = (row * (HEADS + 2 * KV_HEADS) + head) * (2 * HALF) + dims
    first, second = tl.load(qkv_ptr + at), tl.load(qkv_ptr + at + HALF)
    if head < NUM_ROTATED:
        first, second = turned(first, second, cos_ptr, sin_ptr, row * (2 * HALF) + dims, dims < HALF, HALF)
    if head < HEADS:
        place = q_ptr + (row * HEADS + head) * (2 * HALF) + dims
        tl.store(place, first)
        tl.store(place + HALF, second)
    else:
        position = tl.load(positions_ptr + row)
        page = tl.load(table_ptr + row // num_tokens * table_stride + position // PAGE_SIZE)
        slot = (page * PAGE_SIZE + position % PAGE_SIZE) * KV_HEADS
        if head < HEADS + KV_HEADS:
            place = k_ptr + (slot + head - HEADS) * (2 * HALF) + dims
        else:
            place = v_ptr + (slot + head - HEADS - KV_HEADS) * (2 * HALF) + dims
        tl.store(place, first)
        tl.store(place + HALF, second)


def rotate_and_store(
    qkv: Tensor, config: TransformerConfig, rotation: Rotation | None, k_pages: Tensor, v_pages: Tensor,
    context: PagedContext,
) -> Tensor:
    """qkv: [B, T, q + 2 kv]; rotation: of each row; keys and values go into the pages.

    Returns q [B, T, heads, head_dim].
    """
    qkv = qkv.contiguous()
    batch, num_tokens, _ = qkv.shape
    q = qkv.new_empty(batch, num_tokens, config.num_heads, config.head_dim)
    cos, sin = (qkv, qkv) if rotation is None else (part.contiguous() for part in rotation)
    _store[(batch * num_tokens, config.num_heads + 2 * config.num_kv_heads)](
        qkv, cos, sin, q, k_pages, v_pages, context.page_table, context.positions.contiguous(), num_tokens,
        context.page_table.stride(0),
        HEADS=config.num_heads, KV_HEADS=config.num_kv_heads, HALF=config.head_dim // 2, PAGE_SIZE=context.page_size,
        NUM_ROTATED=0 if rotation is None else config.num_heads + config.num_kv_heads,
        **dependent(qkv.device, batch * num_tokens),
    )  # fmt: skip
    return q
