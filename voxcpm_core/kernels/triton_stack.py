"""A whole stack of blocks as one kernel, whose programs stay on the device and meet at a barrier after each phase.

Five phases a block: product of q, k, v; attention; product and residual sum; product and gating; product and residual
sum. What a phase is made of is dealt to all programs, unit after unit. Weights depend on nothing: a program that has
arrived asks the L2 cache for some that it will read a phase or two later before it waits for the others.
"""

from __future__ import annotations

import triton
import triton.language as tl

from voxcpm_core.kernels.triton_decode_attention import decode_unit
from voxcpm_core.kernels.triton_grid import arrive, meet, wait
from voxcpm_core.kernels.triton_local_attention import local_unit
from voxcpm_core.kernels.triton_norm import norm_row
from voxcpm_core.kernels.triton_stack_product import ask, begin_row, normed_unit, residual_unit


@triton.jit
def _num_turns(num_units):
    """How many units this program has of so many; the first is its own number, and the next lies all programs on."""
    return tl.cdiv(tl.maximum(num_units - tl.program_id(0), 0), tl.num_programs(0))


@triton.jit
def _normed(
    x_ptr, weight_ptr, squares_ptr, out_ptr, parts_ptr, counters_ptr, num_rows, num_squares, eps,
    N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr, SQUARES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Neighbours share a tile of W."""
    num_blocks = tl.cdiv(num_rows, BLOCK_M)
    for turn in range(_num_turns(num_blocks * tl.cdiv(N, BLOCK_N) * SPLITS)):
        unit = tl.program_id(0) + turn * tl.num_programs(0)
        number = unit // SPLITS
        if not ALONE:  # between two units nothing else would be on its way
            ask(weight_ptr, unit + tl.num_programs(0), num_rows, N, K, GATED, BLOCK_M, BLOCK_N, BLOCK_K, SPLITS)
        normed_unit(
            x_ptr, weight_ptr, squares_ptr, out_ptr, parts_ptr, counters_ptr,
            number % num_blocks, number // num_blocks, unit % SPLITS, number, num_rows, num_squares, eps,
            N, K, GATED, SQUARES, BLOCK_M, BLOCK_N, BLOCK_K, SPLITS,
        )  # fmt: skip


@triton.jit
def _residual(
    x_ptr, weight_ptr, norm_ptr, hidden_ptr, scaled_ptr, squares_ptr, parts_ptr, counters_ptr, num_rows, scale,
    N: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    num_blocks = tl.cdiv(num_rows, BLOCK_M)
    for turn in range(_num_turns(num_blocks * tl.cdiv(N, BLOCK_N) * SPLITS)):
        unit = tl.program_id(0) + turn * tl.num_programs(0)
        number = unit // SPLITS
        if not ALONE:
            ask(weight_ptr, unit + tl.num_programs(0), num_rows, N, K, False, BLOCK_M, BLOCK_N, BLOCK_K, SPLITS)
        residual_unit(
            x_ptr, weight_ptr, norm_ptr, hidden_ptr, scaled_ptr, squares_ptr, parts_ptr, counters_ptr,
            number % num_blocks, number // num_blocks, unit % SPLITS, number, num_rows, scale,
            N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLITS,
        )  # fmt: skip


@triton.jit
def _attend_locally(
    qkv_ptr, cos_ptr, sin_ptr, out_ptr, num_rows, num_tokens, scale, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    HALF: tl.constexpr, SIDE: tl.constexpr, ROPE: tl.constexpr, MEMBERS: tl.constexpr, TOKENS: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    parts: tl.constexpr = (GROUP + MEMBERS - 1) // MEMBERS
    for turn in range(_num_turns(num_rows // num_tokens * (KV_HEADS * parts))):
        unit = tl.program_id(0) + turn * tl.num_programs(0)
        sequence, head = (unit // (KV_HEADS * parts)).to(tl.int64), unit // parts % KV_HEADS
        local_unit(
            qkv_ptr, cos_ptr, sin_ptr, out_ptr, sequence, head, unit % parts, num_tokens, scale,
            KV_HEADS * GROUP, KV_HEADS, GROUP, MEMBERS, HALF, SIDE, TOKENS, KEYS, ROPE,
        )  # fmt: skip


@triton.jit
def _attend_to_pages(
    qkv_ptr, cos_ptr, sin_ptr, out_ptr, k_ptr, v_ptr, page_table_ptr, positions_ptr, parts_ptr, counters_ptr,
    num_rows, most_splits, table_stride, scale, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HALF: tl.constexpr,
    SIDE: tl.constexpr, ROPE: tl.constexpr, ROWS: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    for turn in range(_num_turns(num_rows * KV_HEADS * most_splits)):
        unit = tl.program_id(0) + turn * tl.num_programs(0)
        head = unit // most_splits
        decode_unit(
            qkv_ptr, cos_ptr, sin_ptr, out_ptr, k_ptr, v_ptr, page_table_ptr, positions_ptr, parts_ptr, counters_ptr,
            (head // KV_HEADS).to(tl.int64), head % KV_HEADS, unit % most_splits, most_splits, table_stride, scale,
            KV_HEADS * GROUP, KV_HEADS, GROUP, ROWS, HALF, SIDE, PAGE_SIZE, BLOCK_KEYS, ROPE,
        )  # fmt: skip


@triton.jit
def _begin(x_ptr, norm_ptr, hidden_ptr, scaled_ptr, squares_ptr, num_rows, HIDDEN: tl.constexpr, WIDTH: tl.constexpr):
    for turn in range(_num_turns(num_rows)):
        row = tl.program_id(0) + turn * tl.num_programs(0)
        begin_row(x_ptr, norm_ptr, hidden_ptr, scaled_ptr, squares_ptr, row, HIDDEN, WIDTH)


@triton.jit
def _end(x_ptr, norm_ptr, out_ptr, num_rows, num_tokens, first_kept, num_kept, eps,
         HIDDEN: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """The final norm of the tokens that are kept."""
    for turn in range(_num_turns(num_rows // num_tokens * num_kept)):
        out_row = tl.program_id(0) + turn * tl.num_programs(0)
        row = out_row // num_kept * num_tokens + first_kept + out_row % num_kept
        norm_row(x_ptr + row * HIDDEN, norm_ptr, out_ptr + out_row * HIDDEN, HIDDEN, eps, WIDTH)


@triton.jit
def _attend(
    qkv_ptr, cos_ptr, sin_ptr, out_ptr, pages_ptr, page_table_ptr, positions_ptr, parts_ptr, counters_ptr, layer,
    num_rows, num_tokens, most_splits, table_stride, values_at, scale, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    HALF: tl.constexpr, SIDE: tl.constexpr, ROPE: tl.constexpr, MEMBERS: tl.constexpr, TOKENS: tl.constexpr,
    KEYS: tl.constexpr, PAGE_SIZE: tl.constexpr,
):  # fmt: skip
    if PAGE_SIZE == 0:
        _attend_locally(
            qkv_ptr, cos_ptr, sin_ptr, out_ptr, num_rows, num_tokens, scale,
            KV_HEADS, GROUP, HALF, SIDE, ROPE, MEMBERS, TOKENS, KEYS,
        )  # fmt: skip
    else:
        k_ptr = pages_ptr + tl.cast(layer, tl.int64) * 2 * values_at
        _attend_to_pages(
            qkv_ptr, cos_ptr, sin_ptr, out_ptr, k_ptr, k_ptr + values_at, page_table_ptr, positions_ptr, parts_ptr,
            counters_ptr, num_rows, most_splits, table_stride, scale,
            KV_HEADS, GROUP, HALF, SIDE, ROPE, MEMBERS, PAGE_SIZE, KEYS,
        )  # fmt: skip


@triton.jit
def _address(addresses_ptr, number, like_ptr):
    return tl.multiple_of(tl.load(addresses_ptr + number).to(like_ptr.dtype), 16)


@triton.jit
def _ask_and_meet(
    barrier_ptr, weight_ptr, num_rows, N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """Wait for all other programs, and ask for those weights meanwhile."""
    if not ALONE:
        before = arrive(barrier_ptr)
        ask(weight_ptr, tl.program_id(0), num_rows, N, K, GATED, BLOCK_M, BLOCK_N, BLOCK_K, SPLITS)
        wait(barrier_ptr, before)


@triton.jit(do_not_specialize=[
    "num_layers", "num_rows", "num_tokens", "first_kept", "num_kept", "most_splits", "table_stride"
])  # fmt: skip
def stack_kernel(
    x_ptr, out_ptr, weights_ptr, hidden_ptr, scaled_ptr, squares_ptr, qkv_ptr, attended_ptr, gated_ptr, parts_ptr,
    counters_ptr, barrier_ptr, cos_ptr, sin_ptr, pages_ptr, page_table_ptr, positions_ptr,
    num_layers, num_rows, num_tokens, first_kept, num_kept, most_splits, table_stride, values_at, residual_scale, scale,
    eps, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, FFN: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    HALF: tl.constexpr, SIDE: tl.constexpr, ROPE: tl.constexpr, MEMBERS: tl.constexpr, TOKENS: tl.constexpr,
    KEYS: tl.constexpr, PAGE_SIZE: tl.constexpr, SQUARES: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    QKV_N: tl.constexpr, QKV_SPLITS: tl.constexpr, O_N: tl.constexpr, O_SPLITS: tl.constexpr, UP_N: tl.constexpr,
    UP_SPLITS: tl.constexpr, DOWN_N: tl.constexpr, DOWN_SPLITS: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    """x: [B, T, HIDDEN]; out: [B, kept, HIDDEN]; weights: int64, addresses of each block's and then as if of one more.

    hidden, scaled, qkv, attended, gated: room for all rows; squares: fp32 [SQUARES, rows]; parts: fp32, for split sums;
    counters: zeros. pages: of all layers, whose values stand `values_at` behind their keys; PAGE_SIZE: 0 for local
    attention. MEMBERS, TOKENS, KEYS: of a unit of attention; over pages most_splits share a sequence and kv head.
    """
    Q: tl.constexpr = KV_HEADS * GROUP * 2 * HALF
    QKV: tl.constexpr = Q + KV_HEADS * 4 * HALF
    num_squares = 1
    _begin(x_ptr, _address(weights_ptr, 0, x_ptr), hidden_ptr, scaled_ptr, squares_ptr, num_rows, HIDDEN, WIDTH)
    _ask_and_meet(barrier_ptr, _address(weights_ptr, 2, x_ptr), num_rows, HIDDEN, Q, False, BLOCK_M, O_N, BLOCK_K,
                  O_SPLITS, ALONE)  # fmt: skip
    for layer in range(num_layers):
        qkv_weight_ptr, o_weight_ptr = _address(weights_ptr, 1, x_ptr), _address(weights_ptr, 2, x_ptr)
        up_weight_ptr, down_weight_ptr = _address(weights_ptr, 4, x_ptr), _address(weights_ptr, 5, x_ptr)
        next_ptr = weights_ptr + 6
        _normed(scaled_ptr, qkv_weight_ptr, squares_ptr, qkv_ptr, parts_ptr, counters_ptr, num_rows, num_squares, eps,
                QKV, HIDDEN, False, SQUARES, BLOCK_M, QKV_N, BLOCK_K, QKV_SPLITS, ALONE)  # fmt: skip
        _ask_and_meet(barrier_ptr, up_weight_ptr, num_rows, FFN, HIDDEN, True, BLOCK_M, UP_N, BLOCK_K, UP_SPLITS,
                      ALONE)  # fmt: skip
        _attend(qkv_ptr, cos_ptr, sin_ptr, attended_ptr, pages_ptr, page_table_ptr, positions_ptr, parts_ptr,
                counters_ptr, layer, num_rows, num_tokens, most_splits, table_stride, values_at, scale,
                KV_HEADS, GROUP, HALF, SIDE, ROPE, MEMBERS, TOKENS, KEYS, PAGE_SIZE)  # fmt: skip
        _ask_and_meet(barrier_ptr, down_weight_ptr, num_rows, HIDDEN, FFN, False, BLOCK_M, DOWN_N, BLOCK_K,
                      DOWN_SPLITS, ALONE)  # fmt: skip
        _residual(attended_ptr, o_weight_ptr, _address(weights_ptr, 3, x_ptr), hidden_ptr, scaled_ptr, squares_ptr,
                  parts_ptr, counters_ptr, num_rows, residual_scale, HIDDEN, Q, BLOCK_M, O_N, BLOCK_K, O_SPLITS,
                  ALONE)  # fmt: skip
        _ask_and_meet(barrier_ptr, _address(next_ptr, 1, x_ptr), num_rows, QKV, HIDDEN, False, BLOCK_M, QKV_N,
                      BLOCK_K, QKV_SPLITS, ALONE)  # fmt: skip
        _normed(scaled_ptr, up_weight_ptr, squares_ptr, gated_ptr, parts_ptr, counters_ptr, num_rows,
                tl.cdiv(HIDDEN, O_N), eps, FFN, HIDDEN, True, SQUARES, BLOCK_M, UP_N, BLOCK_K, UP_SPLITS,
                ALONE)  # fmt: skip
        _ask_and_meet(barrier_ptr, _address(next_ptr, 2, x_ptr), num_rows, HIDDEN, Q, False, BLOCK_M, O_N, BLOCK_K,
                      O_SPLITS, ALONE)  # fmt: skip
        _residual(gated_ptr, down_weight_ptr, _address(next_ptr, 0, x_ptr), hidden_ptr, scaled_ptr, squares_ptr,
                  parts_ptr, counters_ptr, num_rows, residual_scale, HIDDEN, FFN, BLOCK_M, DOWN_N, BLOCK_K, DOWN_SPLITS,
                  ALONE)  # fmt: skip
        meet(barrier_ptr, ALONE)
        weights_ptr, num_squares = next_ptr, tl.cdiv(HIDDEN, DOWN_N)
    _end(hidden_ptr, _address(weights_ptr, 0, x_ptr), out_ptr, num_rows, num_tokens, first_kept, num_kept, eps,
         HIDDEN, WIDTH)  # fmt: skip
