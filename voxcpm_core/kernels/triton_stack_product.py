"""The products of a block as units of a kernel that holds a whole stack.

The RMS norm before a product is shared out: whoever makes x also stores x times the next norm's weight, rounded, and of
each of its tiles one sum of squares a row. The product takes the former as it is, and scales its rows by what the
latter come to. So x is multiplied and squared once, and not by each program that reads it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from voxcpm_core.kernels.triton_products import prefetch, store_part, summed_parts, sums

AHEAD_BYTES = tl.constexpr(64 * 1024)  # of weights that a program asks for ahead of a phase
LINE_BYTES = tl.constexpr(128)  # what one request brings


@triton.jit
def _span(split, K: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr):
    """Where a split's part of K begins, and where it ends."""
    per_split: tl.constexpr = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    first = split * per_split
    return first, tl.minimum(first + per_split, K)


@triton.jit
def ask(
    weight_ptr, unit, num_rows, N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Ask the L2 cache for the first weights of a unit, if there is one of that number."""
    tile = unit // SPLITS // tl.cdiv(num_rows, BLOCK_M)
    columns_left = N - tile * BLOCK_N
    if columns_left > 0:
        itemsize: tl.constexpr = weight_ptr.dtype.element_ty.primitive_bitwidth // 8
        line: tl.constexpr = LINE_BYTES // itemsize
        first, last = _span(unit % SPLITS, K, BLOCK_K, SPLITS)
        last = tl.minimum(last, first + AHEAD_BYTES // (itemsize * BLOCK_N * (1 + GATED)))
        weight_ptr += (tile * BLOCK_N).to(tl.int64) * K
        prefetch(weight_ptr, columns_left, first, last, K, BLOCK_N, BLOCK_K, line)
        if GATED:
            prefetch(weight_ptr + N * K, columns_left, first, last, K, BLOCK_N, BLOCK_K, line)


@triton.jit
def _whole_sums(
    x_ptr, gate_ptr, up_ptr, parts_ptr, counters_ptr, split, number, rows_left, columns_left,
    K: tl.constexpr, GATED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """Of a tile, and whether this program has them: of those that share its K the one that arrives last."""
    first, last = _span(split, K, BLOCK_K, SPLITS)
    acc, up, squares = sums(
        x_ptr, gate_ptr, up_ptr, x_ptr, rows_left, columns_left, first, last,
        K, False, GATED, "", BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    is_last = number >= 0
    if SPLITS > 1:
        parts_ptr += number.to(tl.int64) * (SPLITS * BLOCK_M * (BLOCK_N * (1 + GATED) + 1))
        store_part(acc, up, squares, parts_ptr, split, False, GATED, BLOCK_M, BLOCK_N)
        tl.debug_barrier()  # all threads' stores come before the count, which one thread does
        is_last = tl.atomic_add(counters_ptr + number, 1, sem="acq_rel") == SPLITS - 1
        if is_last:
            acc, up, squares = summed_parts(parts_ptr, False, GATED, BLOCK_M, BLOCK_N, SPLITS)
            tl.store(counters_ptr + number, 0)
    return acc, up, is_last


@triton.jit
def normed_unit(
    x_ptr, weight_ptr, squares_ptr, out_ptr, parts_ptr, counters_ptr, block, tile, split, number,
    num_rows, num_squares, eps,
    N: tl.constexpr, K: tl.constexpr, GATED: tl.constexpr, SQUARES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """The product with the norm of x; of the first half of the columns silu, times the second, where GATED.

    x: [num_rows, K], times the norm's weight already; squares: fp32 [num_squares, num_rows], at most SQUARES.
    """
    corner, column = (block * BLOCK_M).to(tl.int64), (tile * BLOCK_N).to(tl.int64)
    rows_left, columns_left = num_rows - block * BLOCK_M, N - tile * BLOCK_N
    row, at = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    is_row = row < rows_left
    part = tl.arange(0, SQUARES)
    # Asked for ahead of its use, since nothing else hides the time that it takes.
    squares = tl.load(
        squares_ptr + corner + (part[:, None] * num_rows + row[None, :]),
        mask=(part < num_squares)[:, None] & is_row[None, :], other=0.0,
    )  # fmt: skip
    gate_ptr = weight_ptr + column * K
    acc, up, is_last = _whole_sums(
        x_ptr + corner * K, gate_ptr, gate_ptr + N * K, parts_ptr, counters_ptr, split, number, rows_left, columns_left,
        K, GATED, BLOCK_M, BLOCK_N, BLOCK_K, SPLITS,
    )  # fmt: skip
    if is_last:
        inverse = tl.rsqrt(tl.sum(squares, axis=0) / K + eps)[:, None]
        acc = acc * inverse
        if GATED:
            acc = acc / (1.0 + tl.exp(-acc)) * (up * inverse)
        out_ptr += corner * N + column
        is_out = is_row[:, None] & (at < columns_left)[None, :]
        tl.store(out_ptr + (row[:, None] * N + at[None, :]), acc.to(out_ptr.dtype.element_ty), mask=is_out)


@triton.jit
def residual_unit(
    x_ptr, weight_ptr, norm_ptr, hidden_ptr, scaled_ptr, squares_ptr, parts_ptr, counters_ptr,
    block, tile, split, number, num_rows, scale, N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """hidden [num_rows, N] += scale * x W^T; and what the norm after it wants: scaled [num_rows, N] and squares."""
    corner, column = (block * BLOCK_M).to(tl.int64), (tile * BLOCK_N).to(tl.int64)
    rows_left, columns_left = num_rows - block * BLOCK_M, N - tile * BLOCK_N
    row, at = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    is_row, is_column = row < rows_left, at < columns_left
    is_out = is_row[:, None] & is_column[None, :]
    out_at = corner * N + column + (row[:, None] * N + at[None, :])
    residual = tl.load(hidden_ptr + out_at, mask=is_out, other=0.0)  # ahead of its use, and so is the weight
    norm = tl.load(norm_ptr + column + at, mask=is_column, other=0.0)
    weight_ptr += column * K
    acc, _, is_last = _whole_sums(
        x_ptr + corner * K, weight_ptr, weight_ptr, parts_ptr, counters_ptr, split, number, rows_left, columns_left,
        K, False, BLOCK_M, BLOCK_N, BLOCK_K, SPLITS,
    )  # fmt: skip
    if is_last:
        hidden = (residual.to(tl.float32) + acc * scale).to(residual.dtype)
        tl.store(hidden_ptr + out_at, hidden, mask=is_out)
        wide = hidden.to(tl.float32)
        tl.store(scaled_ptr + out_at, (wide * norm.to(tl.float32)[None, :]).to(norm.dtype), mask=is_out)
        squares = tl.where(is_out, wide * wide, 0.0)
        tl.store(squares_ptr + tile * num_rows + corner + row, tl.sum(squares, axis=1), mask=is_row)


@triton.jit
def begin_row(x_ptr, norm_ptr, hidden_ptr, scaled_ptr, squares_ptr, row, N: tl.constexpr, WIDTH: tl.constexpr):
    """A row of x becomes one of hidden, with what the norm after it wants."""
    at = tl.arange(0, WIDTH)
    mask = at < N
    x = tl.load(x_ptr + row * N + at, mask=mask, other=0.0)
    norm = tl.load(norm_ptr + at, mask=mask, other=0.0)
    wide = x.to(tl.float32)
    tl.store(hidden_ptr + row * N + at, x, mask=mask)
    tl.store(scaled_ptr + row * N + at, (wide * norm.to(tl.float32)).to(x.dtype), mask=mask)
    tl.store(squares_ptr + row, tl.sum(wide * wide, axis=0))
