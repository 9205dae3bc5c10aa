"""Bidirectional attention inside short sequences (the DiT's tokens, a patch) with its rope, as one Triton kernel.

Rows of q, k and v that are yet to be scaled by a factor each are turned as they are; their scores are scaled, and v.

A program holds queries of one sequence that share a key-value head, and all of its keys: all of these queries where
there are many sequences, else those of a few heads. Where some tokens alone are kept, it has the queries of these, and
copies some columns of their x.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.layer_ops import ALL_TOKENS
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.triton_layout import settled
from voxcpm_core.kernels.triton_norm import inverse_rms
from voxcpm_core.kernels.triton_pdl import begin, dependent
from voxcpm_core.kernels.triton_rope import turned

MIN_SIDE = 16  # of a matrix product
FULL_ROWS = 64  # of a program that keeps all tokens, as Hopper's matrix products have at least
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
    qkv_ptr, x_ptr, cos_ptr, sin_ptr, out_ptr, kept_x_ptr, num_tokens, first, num_kept, scale, eps,
    SCALED: tl.constexpr, HIDDEN: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    MEMBERS: tl.constexpr, HALF: tl.constexpr, SIDE: tl.constexpr, TOKENS: tl.constexpr, KEYS: tl.constexpr,
    COPIED: tl.constexpr, ROPE: tl.constexpr, PDL: tl.constexpr, COMPILED: tl.constexpr,
):  # fmt: skip
    """Of tokens `first` to `first` + num_kept. MEMBERS: heads of a program, of the GROUP that share a key-value head.

    x: [sequences, num_tokens, HIDDEN], read where not SCALED; COPIED: columns of it that a program copies, 0 for none.
    """
    begin(PDL)
    sequence, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    width: tl.constexpr = (HEADS + 2 * KV_HEADS) * 2 * HALF
    x_ptr += sequence * num_tokens * HIDDEN
    rows = tl.arange(0, TOKENS * MEMBERS)
    place, member = rows // MEMBERS, tl.program_id(2) * MEMBERS + rows % MEMBERS
    token = first + place
    is_row = (place < num_kept) & (member < GROUP)
    head = kv_head * GROUP + member
    key = tl.arange(0, KEYS)
    is_key = key < num_tokens
    row_at = (sequence * num_tokens + token) * width + head * (2 * HALF)
    key_at = (sequence * num_tokens + key) * width + (HEADS + kv_head) * (2 * HALF)
    dims = tl.arange(0, 2 * HALF)
    value_at = key_at + KV_HEADS * (2 * HALF)
    # All that is read is asked for before anything is computed: what such a kernel takes is waiting.
    v = tl.load(qkv_ptr + value_at[:, None] + dims[None, :], mask=is_key[:, None], other=0.0)
    if COPIED > 0:
        number = kv_head * tl.num_programs(2) + tl.program_id(2)
        kept, column = tl.arange(0, TOKENS)[:, None], (number * COPIED + tl.arange(0, COPIED))[None, :]
        x_at, is_x = kept * HIDDEN + column, (kept < num_kept) & (column < HIDDEN)
        x = tl.load(x_ptr + first * HIDDEN + x_at, mask=is_x, other=0.0)
    q1, q2 = _rotated(qkv_ptr, cos_ptr, sin_ptr, row_at, token, is_row, HALF, SIDE, ROPE)
    k1, k2 = _rotated(qkv_ptr, cos_ptr, sin_ptr, key_at, key, is_key, HALF, SIDE, ROPE)
    inverse = tl.full((KEYS,), 1.0, tl.float32)
    if not SCALED:
        inverse = inverse_rms(x_ptr, is_key, eps, HIDDEN, KEYS)
    scores = tl.dot(settled(q1, COMPILED), tl.trans(settled(k1, COMPILED)), input_precision="ieee")
    scores = tl.dot(settled(q2, COMPILED), tl.trans(settled(k2, COMPILED)), scores, input_precision="ieee") * scale
    if not SCALED:
        of_rows = tl.sum(tl.where(token[:, None] == key[None, :], inverse[None, :], 0.0), axis=1)  # their tokens' own
        scores = scores * of_rows[:, None] * inverse[None, :]
    scores = tl.where(is_key[None, :], scores, float("-inf"))
    weights = tl.exp2(scores - tl.max(scores, axis=1)[:, None])
    total = tl.sum(weights, axis=1)
    weights = (weights * inverse[None, :]).to(v.dtype)  # v's scale
    result = tl.dot(weights, v, input_precision="ieee") / total[:, None]
    out_at = ((sequence * num_kept + place) * HEADS + head) * (2 * HALF)
    tl.store(out_ptr + out_at[:, None] + dims[None, :], result.to(out_ptr.dtype.element_ty), mask=is_row[:, None])
    if COPIED > 0:
        tl.store(kept_x_ptr + sequence * num_kept * HIDDEN + x_at, x, mask=is_x)


def local_attention(
    qkv: Tensor, config: TransformerConfig, rotation: Rotation | None, x: Tensor, eps: float | None,
    kept: slice = ALL_TOKENS,
) -> tuple[Tensor, Tensor]:
    """qkv: [N, T, q + 2 kv], x: [N, T, hidden] -> of the tokens `kept` [N, T', q] and x [N, T', hidden].

    rotation: of the T tokens, which all sequences share. eps: of the RMS norm of x, by whose inverse the rows of `qkv`
    have yet to be scaled; None: they need no more.
    """
    qkv, x = qkv.contiguous(), x.contiguous()
    count, num_tokens, hidden = x.shape
    first, end, step = kept.indices(num_tokens)
    num_kept = end - first
    assert step == 1 <= num_kept
    out = qkv.new_empty(count, num_kept, config.q_size)
    kept_x = x if num_kept == num_tokens else x.new_empty(count, num_kept, hidden)
    cos, sin = (qkv, qkv) if rotation is None else (part.contiguous() for part in rotation)
    group = config.num_heads // config.num_kv_heads
    members, all_tokens = triton.next_power_of_2(group), triton.next_power_of_2(num_tokens)
    if count * config.num_kv_heads < ENOUGH_PROGRAMS:
        members = max(1, min(members, FULL_ROWS // all_tokens))
    blocks = triton.cdiv(group, members)
    copied = 0 if kept_x is x else triton.next_power_of_2(triton.cdiv(hidden, config.num_kv_heads * blocks))
    _local[(count, config.num_kv_heads, blocks)](
        qkv, x, cos, sin, out, kept_x, num_tokens, first, num_kept,
        math.log2(math.e) / math.sqrt(config.head_dim), eps or 0.0, SCALED=eps is None, HIDDEN=hidden,
        HEADS=config.num_heads, KV_HEADS=config.num_kv_heads, GROUP=group, MEMBERS=members,
        HALF=config.head_dim // 2, SIDE=max(config.head_dim // 2, MIN_SIDE),
        TOKENS=max(triton.next_power_of_2(num_kept), MIN_SIDE // members), KEYS=max(all_tokens, MIN_SIDE),
        COPIED=copied, ROPE=rotation is not None, COMPILED=qkv.is_cuda, num_warps=NUM_WARPS,
        **dependent(qkv.device, count * num_tokens),
    )  # fmt: skip
    return out, kept_x
