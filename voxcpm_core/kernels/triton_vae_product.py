"""The AudioVAE's matrix products, with what follows each of them up to the next convolution."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.triton_vae_math import Memory, halves, snake

BORDER_BLOCK = 1024  # channels of a program


class Product(NamedTuple):
    """A matrix, and per column what is done to x = residual + product + bias: snake(scale * x + shift)."""

    weight: Tensor  # fp16 [2, K, N], its halves
    params: Tensor  # fp32 [5, N]: bias, scale, shift, the snake's alpha / pi and 1 / alpha

    @property
    def num_columns(self) -> int:
        return self.weight.shape[2]


class Tile(NamedTuple):
    """What one program of a product makes, and how."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int


# Large ones for throughput, of few warps, so that several programs share a multiprocessor; small ones where there are
# few rows, so that all multiprocessors read weights.
TILES = (
    Tile(128, 128, 32, 4, 3), Tile(128, 64, 32, 4, 4), Tile(64, 64, 64, 4, 3), Tile(32, 64, 64, 4, 3),
    Tile(16, 64, 64, 4, 4),
)  # fmt: skip
COLUMNS = tl.constexpr(64)  # that a program finishes at a time: of more, registers would not hold what that takes
ENOUGH_PROGRAMS = 100  # of 64 columns; of wider ones more, which hide less behind one another


def tile_of(num_rows: int, num_columns: int) -> Tile:
    """The largest tile that the matrix fills and that gives enough programs, or else the smallest."""
    for tile in TILES:
        is_filled = num_rows > tile.rows // 2 and num_columns > tile.columns // 2
        is_filled &= -num_columns % tile.columns < COLUMNS.value
        num_programs = triton.cdiv(num_rows, tile.rows) * triton.cdiv(num_columns, tile.columns)
        if is_filled and num_programs >= ENOUGH_PROGRAMS * tile.columns // COLUMNS.value:
            return tile
    return TILES[-1]


@triton.jit
def finish(
    total, params_ptr, residual_ptr, sum_ptr, out_ptr, half_stride, row, out_row, is_row, column, num_columns,
    RESIDUAL: tl.constexpr, OUT_HALVES: tl.constexpr,
):  # fmt: skip
    """Bias, residual, snake, and storing; the pointers are those of the tile's first row.

    OUT_HALVES: the snake alone is stored, as fp16 halves; or else it and what it is taken of in fp32.
    """
    is_column = column < num_columns
    mask = is_row[:, None] & is_column[None, :]
    at = row[:, None] * num_columns + column[None, :]
    x = total + tl.load(params_ptr + column, mask=is_column, other=0.0)[None, :]
    if RESIDUAL:
        x += tl.load(residual_ptr + at, mask=mask, other=0.0)
    scale = tl.load(params_ptr + num_columns + column, mask=is_column, other=0.0)
    shift = tl.load(params_ptr + 2 * num_columns + column, mask=is_column, other=0.0)
    alpha = tl.load(params_ptr + 3 * num_columns + column, mask=is_column, other=0.0)
    inverse = tl.load(params_ptr + 4 * num_columns + column, mask=is_column, other=0.0)
    y = snake(x * scale[None, :] + shift[None, :], alpha[None, :], inverse[None, :])
    out_at = out_row[:, None] * num_columns + column[None, :]
    if OUT_HALVES:
        high, low = halves(y)
        tl.store(out_ptr + out_at, high, mask=mask)
        tl.store(out_ptr + half_stride + out_at, low, mask=mask)
    else:
        tl.store(sum_ptr + at, x, mask=mask)
        tl.store(out_ptr + out_at, y, mask=mask)


@triton.jit(do_not_specialize=["num_rows", "num_frames"])
def _product(
    rows_ptr, weight_ptr, params_ptr, residual_ptr, sum_ptr, out_ptr,
    num_rows, num_frames, num_columns, depth, row_stride, half_stride, out_half_stride,
    BORDER: tl.constexpr, RESIDUAL: tl.constexpr, OUT_HALVES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """BORDER: frames that stand before each stream's num_frames in rows; in out one does if it is of halves."""
    out_border: tl.constexpr = 1 if OUT_HALVES else 0
    # Neighbours share rows: it is these that the cache may fail to hold, not the weights.
    blocks = tl.cdiv(num_columns, BLOCK_N)
    first_row = (tl.program_id(0) // blocks) * BLOCK_M
    first_column = (tl.program_id(0) % blocks) * BLOCK_N
    column = first_column + tl.arange(0, BLOCK_N)
    row, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    is_row, is_column = first_row + row < num_rows, column < num_columns
    stream = first_row // num_frames
    streams_on = (first_row + row) // num_frames - stream
    rows_ptr += (first_row + stream * BORDER).to(tl.int64) * row_stride
    row_at = (row + streams_on * BORDER)[:, None] * row_stride + k[None, :]
    weight_at = k[:, None] * num_columns + column[None, :]
    low_weight_ptr = weight_ptr + depth * num_columns
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, depth, BLOCK_K):
        is_k = first + k < depth
        row_mask, weight_mask = is_row[:, None] & is_k[None, :], is_k[:, None] & is_column[None, :]
        high = tl.load(rows_ptr + first + row_at, mask=row_mask, other=0.0)
        high_weight = tl.load(weight_ptr + first * num_columns + weight_at, mask=weight_mask, other=0.0)
        low = tl.load(rows_ptr + half_stride + first + row_at, mask=row_mask, other=0.0)
        low_weight = tl.load(low_weight_ptr + first * num_columns + weight_at, mask=weight_mask, other=0.0)
        total = tl.dot(low, high_weight, total)
        total = tl.dot(high, low_weight, total)
        total = tl.dot(high, high_weight, total)
    first_sum = first_row.to(tl.int64) * num_columns
    first_out = (first_row + (stream + 1) * out_border).to(tl.int64) * num_columns
    if BLOCK_N == 2 * COLUMNS:
        pieces = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, COLUMNS)), (0, 2, 1)))
        column = first_column + tl.arange(0, COLUMNS)
    else:
        pieces = (total,)
    for piece in tl.static_range(len(pieces)):
        finish(
            pieces[piece], params_ptr, residual_ptr + first_sum, sum_ptr + first_sum, out_ptr + first_out,
            out_half_stride, row, row + streams_on * out_border, is_row, column + piece * COLUMNS, num_columns,
            RESIDUAL, OUT_HALVES,
        )  # fmt: skip


class Frames(NamedTuple):
    """What is made of the frames of B streams up to the next convolution over time."""

    total: Tensor | None  # fp32 [B, T, C]; None at a block's end, where nothing needs it
    # Of it: fp32 [B, T, C]; at a block's end fp16 halves [2, B, border + T, C], with room for the frames before.
    snake: Tensor

    def stored(self, border: int) -> Tensor:
        """Where kernels store the snake, of halves from one frame before the first on."""
        return self.snake if self.total is not None else self.snake[:, :, border - 1 :]


def new_frames(
    batch: int, num_frames: int, num_channels: int, out_halves: bool, device: torch.device, border: int = 1
) -> Frames:
    """Uninitialised. `out_halves`: for a product at the next block's begin; `border`: frames that it looks back at, one
    but for a batch of one.
    """
    assert border == 1 or batch == 1
    if out_halves:
        shape = 2, batch, border + num_frames, num_channels
        return Frames(None, torch.empty(shape, dtype=torch.float16, device=device))
    shape = 2, batch, num_frames, num_channels
    return Frames(*torch.empty(shape, dtype=torch.float32, device=device).unbind())


def pointwise(
    rows: Tensor, product: Product, residual: Tensor | None, out_halves: bool, out_border: int = 1
) -> Frames:
    """A convolution of kernel 1 and the sum with the residual. rows: fp16 halves [2, B, T, K] -> [B, T, N]."""
    _, batch, num_frames, _ = rows.shape
    out = new_frames(batch, num_frames, product.num_columns, out_halves, rows.device, out_border)
    _launch(rows, product, residual, out, num_frames, border=0, out_halves=out_halves, out_border=out_border)
    return out


def windowed(rows: Tensor, product: Product, out_halves: bool, out_border: int = 1) -> Frames:
    """A convolution over windows of one stream's frames, rows that overlap: fp16 halves [2, 1, T, K] -> [1, T, N]."""
    _, batch, num_frames, _ = rows.shape
    assert batch == 1
    out = new_frames(batch, num_frames, product.num_columns, out_halves, rows.device, out_border)
    # No border is skipped before the first stream, so the kernel of `upsample` does, which decoding compiles anyway.
    border = 0 if out_halves else 1
    _launch(rows, product, None, out, num_frames, border=border, out_halves=out_halves, out_border=out_border)
    return out


def upsample(rows: Tensor, product: Product, num_channels: int, memory: Memory, state_offset: int) -> Frames:
    """A transposed convolution of kernel 2 * stride of a block's end [2, B, 1 + T, C]; advances the states.

    `product` takes the frame before and a frame, K = 2 C, to stride frames, N = stride * num_channels.
    """
    _, batch, num_frames, _ = rows.shape
    num_frames -= 1
    _exchange_border(rows, memory, state_offset)
    wide = new_frames(batch, num_frames, product.num_columns, False, rows.device)
    _launch(rows, product, None, wide, num_frames, border=1, out_halves=False)
    return Frames(*(tensor.view(batch, -1, num_channels) for tensor in wide))


def _launch(
    rows: Tensor, product: Product, residual: Tensor | None, out: Frames, num_frames: int, border: int,
    out_halves: bool, out_border: int = 1,
) -> None:
    _, depth, num_columns = product.weight.shape
    num_rows = rows.shape[1] * num_frames
    tile = tile_of(num_rows, num_columns)
    grid = (triton.cdiv(num_rows, tile.rows) * triton.cdiv(num_columns, tile.columns),)
    unused = stored = out.stored(out_border)  # where a pointer is not followed
    _product[grid](
        rows, product.weight, product.params, unused if residual is None else residual,
        unused if out.total is None else out.total, stored,
        num_rows, num_frames, num_columns, depth, rows.stride(2), rows.stride(0), stored.stride(0),
        BORDER=border, RESIDUAL=residual is not None, OUT_HALVES=out_halves,
        BLOCK_M=tile.rows, BLOCK_N=tile.columns, BLOCK_K=tile.depth,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_frames"])
def _exchange(
    rows_ptr, past_ptr, states_ptr, slots_ptr, num_frames, num_channels, state_size, state_offset, half_stride,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = channel < num_channels
    first_ptr = rows_ptr + row * (num_frames + 1) * num_channels
    last_ptr = first_ptr + num_frames.to(tl.int64) * num_channels
    last = tl.load(last_ptr + channel, mask=mask, other=0.0).to(tl.float32)
    last += tl.load(last_ptr + half_stride + channel, mask=mask, other=0.0).to(tl.float32)
    past = tl.load(past_ptr + row * state_size + state_offset + channel, mask=mask, other=0.0)
    state_ptr = states_ptr + tl.load(slots_ptr + row) * state_size + state_offset
    tl.store(state_ptr + channel, last, mask=mask)
    high, low = halves(past)
    tl.store(first_ptr + channel, high, mask=mask)
    tl.store(first_ptr + half_stride + channel, low, mask=mask)


def _exchange_border(rows: Tensor, memory: Memory, state_offset: int) -> None:
    """Put each stream's last frame of the past before its rows, and keep the last of these instead."""
    _, batch, num_frames, num_channels = rows.shape
    _exchange[(batch, triton.cdiv(num_channels, BORDER_BLOCK))](
        rows, *memory, num_frames - 1, num_channels, memory.past.shape[1], state_offset, rows.stride(0),
        BLOCK=BORDER_BLOCK,
    )  # fmt: skip
