"""Bidirectional attention inside short sequences (the DiT's tokens, a patch) with its rope, as one Triton kernel.

Rows of q, k and v that are yet to be scaled by a factor each are turned as they are; their scores are scaled, and v.

A program holds queries of one sequence that share a key-value head, and all of its keys: all of these queries where
there are many sequences, else those of a few heads.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.triton_layout import settled
from voxcpm_core.kernels.triton_norm import inverse_rms
from voxcpm_core.kernels.triton_pdl import begin, dependent
from voxcpm_core.kernels.triton_rope import turned

MIN_SIDE = 16  # of a matrix product
FULL_ROWS = 64  # of a program, as Hopper's matrix products have at least
ENOUGH_PROGRAMS = 128  # about one for each processor of a large GPU
NUM_WARPS = 8  # each has half as much to wait for as of four


@triton.jit
def _rotated(x_ptr, cos_ptr, sin_ptr, at, token, is_row, HALF: tl.constexpr, SIDE: tl.constexpr, ROPE: tl.constexpr):
    """Both halves of the rows that begin at `at`, each [rows, SIDE], turned by their token's angle; zeros fill up."""
    dims = tl.arange(0, SIDE)
    mask = is_row[:, None] & (dims < HALF)[None, :]
    first = tl.load(x_ptr + at[:, None] + dims[None, :], mask=mask, other=0.0)
    second = tl.load(x_ptr + at[:, None] + HALF + dims[None, :], mask=mask, other=0.0)
    if ROPE:
        angle = token[:, None] * (2 * HALF) + dims[None, :]
        first, second = turned(first, second, cos_ptr, sin_ptr, angle, mask, HALF)
    return first, second


@triton.jit
def _local(
    qkv_ptr, x_ptr, cos_ptr, sin_ptr, out_ptr, num_tokens, scale, eps, SCALED: tl.constexpr, HIDDEN: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, MEMBERS: tl.constexpr, HALF: tl.constexpr,
    SIDE: tl.constexpr, TOKENS: tl.constexpr, KEYS: tl.constexpr, ROPE: tl.constexpr, PDL: tl.constexpr,
    COMPILED: tl.constexpr,
):  # fmt: skip
    """MEMBERS: heads of a program, of the GROUP that share a key-value head; x is read where not SCALED."""
    begin(PDL)
    sequence, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = (HEADS + 2 * KV_HEADS) * 2 * HALF
    rows = tl.arange(0, TOKENS * MEMBERS)
    token, member = rows // MEMBERS, tl.program_id(2) * MEMBERS + rows % MEMBERS
    is_row = (token < num_tokens) & (member < GROUP)
    head = kv_head * GROUP + member
    key = tl.arange(0, KEYS)
    is_key = key < num_tokens
    row_at = (sequence * num_tokens + token) * width + head * (2 * HALF)
    key_at = (sequence * num_tokens + key) * width + (HEADS + kv_head) * (2 * HALF)
    dims = tl.arange(0, 2 * HALF)
    value_at = key_at + KV_HEADS * (2 * HALF)
    # All that is read is asked for before anything is computed: what such a kernel takes is waiting.
    v = tl.load(qkv_ptr + value_at[:, None] + dims[None, :], mask=is_key[:, None], other=0.0)
    q1, q2 = _rotated(qkv_ptr, cos_ptr, sin_ptr, row_at, token, is_row, HALF, SIDE, ROPE)
    k1, k2 = _rotated(qkv_ptr, cos_ptr, sin_ptr, key_at, key, is_key, HALF, SIDE, ROPE)
    inverse, of_queries = tl.full((KEYS,), 1.0, tl.float32), tl.full((TOKENS,), 1.0, tl.float32)
    if not SCALED:
        x_ptr += sequence * num_tokens * HIDDEN
        inverse = inverse_rms(x_ptr, is_key, eps, HIDDEN, KEYS)
        of_queries = inverse
        if TOKENS != KEYS:
            of_queries = inverse_rms(x_ptr, tl.arange(0, TOKENS) < num_tokens, eps, HIDDEN, TOKENS)
    scores = tl.dot(settled(q1, COMPILED), tl.trans(k1), input_precision="ieee")
    scores = tl.dot(settled(q2, COMPILED), tl.trans(k2), scores, input_precision="ieee") * scale
    if not SCALED:
        of_rows = tl.reshape(tl.broadcast_to(of_queries[:, None], (TOKENS, MEMBERS)), (TOKENS * MEMBERS,))
        scores = scores * of_rows[:, None] * inverse[None, :]
    scores = tl.where(is_key[None, :], scores, float("-inf"))
    weights = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
    total = tl.sum(weights, axis=1)
    weights = (weights * inverse[None, :]).to(v.dtype)  # v's scale
    result = tl.dot(weights, v, input_precision="ieee") / total[:, None]
    out_at = ((sequence * num_tokens + token) * HEADS + head) * (2 * HALF)
    tl.store(out_ptr + out_at[:, None] + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=is_row[:, None])


def local_attention(
    qkv: Tensor, config: TransformerConfig, rotation: Rotation | None, x: Tensor | None = None, eps: float = 0.0
) -> Tensor:
    """qkv: [N, T, q + 2 kv]; rotation: of the T tokens, which all sequences share. Returns [N, T, q].

    x: [N, T, hidden], by whose inverse RMS the rows of `qkv` have yet to be scaled; None: they need no more.
    """
    qkv = qkv.contiguous()
    count, num_tokens, _ = qkv.shape
    out = qkv.new_empty(count, num_tokens, config.q_size)
    cos, sin = (qkv, qkv) if rotation is None else (part.contiguous() for part in rotation)
    group = config.num_heads // config.num_kv_heads
    members, tokens = triton.next_power_of_2(group), triton.next_power_of_2(num_tokens)
    if count * config.num_kv_heads < ENOUGH_PROGRAMS:
        members = max(1, min(members, FULL_ROWS // tokens))
    _local[(count, config.num_kv_heads, triton.cdiv(group, members))](
        qkv, qkv if x is None else x.contiguous(), cos, sin, out, num_tokens,
        math.log2(math.e) / math.sqrt(config.head_dim), eps, SCALED=x is None, HIDDEN=1 if x is None else x.shape[-1],
        HEADS=config.num_heads, KV_HEADS=config.num_kv_heads, GROUP=group, MEMBERS=members,
        HALF=config.head_dim // 2, SIDE=max(config.head_dim // 2, MIN_SIDE),
        TOKENS=max(tokens, MIN_SIDE // members), KEYS=max(tokens, MIN_SIDE), ROPE=rotation is not None,
        COMPILED=qkv.is_cuda, num_warps=NUM_WARPS, **dependent(qkv.device, count * num_tokens),
    )  # fmt: skip
    return out
