"""A residual unit of few channels as one kernel: depthwise convolution, snake, product, sum, and the next snake.

A program holds all channels of its frames, so nothing is convolved twice and nothing in between leaves it.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from voxcpm_core.kernels.triton_vae_conv import KEPT_FRAMES, DepthwiseConv, convolved
from voxcpm_core.kernels.triton_vae_math import TAPS, Memory, block_of, halves, keep_frames
from voxcpm_core.kernels.triton_vae_product import Frames, Product, finish, new_frames

ENOUGH_PROGRAMS = 200
MAX_REGISTERS = 128  # of a thread where there are 8 warps: room for two programs on a multiprocessor


class Blocks(NamedTuple):
    """What one program of a unit makes, and how."""

    frames: int
    columns: int  # that hold all channels
    depth: int  # channels that are convolved at a time
    num_warps: int

    @property
    def options(self) -> dict[str, int]:
        """What the compiler is told besides."""
        limit = {"maxnreg": MAX_REGISTERS} if self.num_warps == 8 else {}
        return {"num_warps": self.num_warps, "num_stages": 1, **limit}


@triton.jit(do_not_specialize=["num_frames", "dilation"])
def _unit(
    x_ptr, past_ptr, states_ptr, slots_ptr, conv_ptr, weight_ptr, params_ptr, residual_ptr, sum_ptr, out_ptr,
    num_frames, dilation, state_size, state_offset, out_half_stride,
    num_channels: tl.constexpr, OUT_HALVES: tl.constexpr, KEPT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """num_channels is constant, so that offsets take few registers: they decide how many programs run at a time."""
    stream = tl.program_id(1).to(tl.int64)
    first_frame = tl.program_id(0) * BLOCK_M
    x_ptr += stream * num_frames * num_channels
    past_ptr += stream * state_size + state_offset
    k, column = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_N)
    pair = tl.arange(0, 2 * BLOCK_K)
    if first_frame >= num_frames:  # the program behind the last block
        state_ptr = states_ptr + tl.load(slots_ptr + stream) * state_size + state_offset
        for first in range(0, num_channels, BLOCK_K):
            keep_frames(
                x_ptr, past_ptr, state_ptr, first + k, num_frames, num_channels, dilation * (TAPS - 1), FRAMES=KEPT
            )
    else:
        frame = tl.arange(0, BLOCK_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for first in range(0, num_channels, BLOCK_K):
            channel = first + k
            y = convolved(
                x_ptr, past_ptr, conv_ptr, first_frame, frame, channel, num_frames, num_channels, dilation
            )
            high, low = halves(y)
            # As one matrix: a plain sum of fp16 values would make Triton move all the taps into a product's layout.
            pairs = tl.interleave(high, low)  # [frame, 2 BLOCK_K]
            at = (first + pair // 2)[:, None] * num_channels + column[None, :]
            mask = (first + pair // 2 < num_channels)[:, None] & (column < num_channels)[None, :]
            high_weight = tl.load(weight_ptr + at, mask=mask, other=0.0)
            low_weight = tl.load(weight_ptr + num_channels * num_channels + at, mask=mask, other=0.0)
            total = tl.dot(pairs, low_weight, total)
            total = tl.dot(pairs, high_weight, total)
        first_sum = (stream * num_frames + first_frame) * num_channels
        first_out = first_sum
        if OUT_HALVES:
            first_out += (stream + 1) * num_channels  # a frame before each stream's
        finish(
            total, params_ptr, residual_ptr + first_sum, sum_ptr + first_sum, out_ptr + first_out, out_half_stride,
            frame, frame, first_frame + frame < num_frames, column, num_channels, True, OUT_HALVES,
        )  # fmt: skip


def fused_unit(
    frames: Frames, conv: DepthwiseConv, product: Product, memory: Memory, out_halves: bool, out_border: int = 1
) -> Frames:
    """A residual unit; advances the states."""
    x, residual = frames.snake, frames.total
    batch, num_frames, num_channels = x.shape
    out = new_frames(batch, num_frames, num_channels, out_halves, x.device, out_border)
    stored = out.stored(out_border)
    blocks = blocks_of(batch, num_frames, num_channels)
    _unit[(triton.cdiv(num_frames, blocks.frames) + 1, batch)](
        x, *memory, conv.params, product.weight, product.params, residual,
        stored if out.total is None else out.total, stored,
        num_frames, conv.dilation, memory.past.shape[1], conv.state_offset, stored.stride(0),
        num_channels=num_channels, OUT_HALVES=out_halves, KEPT=KEPT_FRAMES,
        BLOCK_M=blocks.frames, BLOCK_N=blocks.columns, BLOCK_K=blocks.depth, **blocks.options,
    )  # fmt: skip
    return out


def blocks_of(batch: int, num_frames: int, num_channels: int) -> Blocks:
    """Up to 32 channels eight warps of few registers, else four of as many as they want; fewer frames a program where
    programs would be few."""
    columns = block_of(num_channels)
    many = Blocks(128, columns, columns, 8) if columns <= 32 else Blocks(64, columns, 64 if columns == 64 else 32, 4)
    if batch * triton.cdiv(num_frames, many.frames) < ENOUGH_PROGRAMS:
        return many._replace(frames=32)
    return many
