"""A residual unit of few channels as one kernel: depthwise convolution, snake, product, sum, and the next snake.

A program holds all channels of its frames, so nothing is convolved twice and nothing in between leaves it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from voxcpm_core.kernels.triton_vae_conv import KEPT_FRAMES, DepthwiseConv, convolved
from voxcpm_core.kernels.triton_vae_math import TAPS, Memory, block_of, halves, keep_frames
from voxcpm_core.kernels.triton_vae_product import Frames, Product, finish, new_frames

BLOCK_FRAMES, FEW_FRAMES = 64, 32  # of a program, and where there are few
FEW_CHANNELS = 32  # of which a program takes twice the frames
ENOUGH_PROGRAMS = 200
MAX_REGISTERS = 128  # of a thread: room for two programs of 8 warps on a multiprocessor


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


def fused_unit(frames: Frames, conv: DepthwiseConv, product: Product, memory: Memory, out_halves: bool) -> Frames:
    """A residual unit; advances the states."""
    x, residual = frames.snake, frames.total
    batch, num_frames, num_channels = x.shape
    out = new_frames(batch, num_frames, num_channels, out_halves, x.device)
    block_m, block_n, block_k = block_sizes(batch, num_frames, num_channels)
    _unit[(triton.cdiv(num_frames, block_m) + 1, batch)](
        x, *memory, conv.params, product.weight, product.params, residual,
        out.snake if out.total is None else out.total, out.snake,
        num_frames, conv.dilation, memory.past.shape[1], conv.state_offset, out.snake.stride(0),
        num_channels=num_channels, OUT_HALVES=out_halves, KEPT=KEPT_FRAMES,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=8, num_stages=1, maxnreg=MAX_REGISTERS,
    )  # fmt: skip
    return out


def block_sizes(batch: int, num_frames: int, num_channels: int) -> tuple[int, int, int]:
    """Frames of a program, channels of its result, and channels that it convolves at a time."""
    block_n = block_of(num_channels)
    block_m = BLOCK_FRAMES if block_n > FEW_CHANNELS else 2 * BLOCK_FRAMES
    if batch * triton.cdiv(num_frames, block_m) < ENOUGH_PROGRAMS:
        block_m = FEW_FRAMES
    return block_m, block_n, min(block_n, 32 if block_n <= 64 else 16)
