"""The AudioVAE's convolutions over time that are no matrix product: depthwise, and the last one to a single channel."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.triton_vae_math import TAPS, Memory, block_of, halves, keep_frames, snake, tap_sum

KEPT_FRAMES = 64  # at least (TAPS - 1) * the largest dilation
BLOCK_FRAMES, BLOCK_CHANNELS = 64, 32
LAST_BLOCK = 2048  # values of a program of the last convolution


class DepthwiseConv(NamedTuple):
    """A causal depthwise convolution and the snake behind it."""

    params: Tensor  # fp32 [TAPS + 3, C]: weights, bias, the snake's alpha / pi and 1 / alpha (both 0: no snake)
    dilation: int
    state_offset: int  # in floats, of its [(TAPS - 1) * dilation, C] in a stream's state


class LastConv(NamedTuple):
    """The causal convolution to one channel, and tanh."""

    weights: Tensor  # fp32 [TAPS, C]
    bias: Tensor  # fp32 [1]
    state_offset: int


@triton.jit
def convolved(
    x_ptr, past_ptr, params_ptr, first_frame, frame, channel, num_frames, num_channels, dilation,
):  # fmt: skip
    """Depthwise convolution and snake of one stream's frames. # fp32 [frame, channel]"""
    total = tap_sum(x_ptr, past_ptr, params_ptr, first_frame, frame, channel, num_frames, num_channels, dilation)
    mask = channel < num_channels
    bias = tl.load(params_ptr + TAPS * num_channels + channel, mask=mask, other=0.0)
    alpha = tl.load(params_ptr + (TAPS + 1) * num_channels + channel, mask=mask, other=0.0)
    inverse = tl.load(params_ptr + (TAPS + 2) * num_channels + channel, mask=mask, other=0.0)
    return snake(total + bias[None, :], alpha[None, :], inverse[None, :])


@triton.jit(do_not_specialize=["num_frames", "dilation"])
def _depthwise(
    x_ptr, past_ptr, states_ptr, slots_ptr, params_ptr, out_ptr,
    num_frames, num_channels, dilation, state_size, state_offset, half_stride,
    KEPT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    block, row = tl.program_id(0), tl.program_id(2).to(tl.int64)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    x_ptr += row * num_frames * num_channels
    past_ptr += row * state_size + state_offset
    first_frame = block * BLOCK_T
    if first_frame >= num_frames:  # the program behind the last block
        state_ptr = states_ptr + tl.load(slots_ptr + row) * state_size + state_offset
        keep_frames(
            x_ptr, past_ptr, state_ptr, channel, num_frames, num_channels, dilation * (TAPS - 1), FRAMES=KEPT
        )
    else:
        frame = tl.arange(0, BLOCK_T)
        y = convolved(
            x_ptr, past_ptr, params_ptr, first_frame, frame, channel, num_frames, num_channels, dilation
        )
        high, low = halves(y)
        mask = (first_frame + frame < num_frames)[:, None] & (channel < num_channels)[None, :]
        at = frame[:, None] * num_channels + channel[None, :]
        out_ptr += (row * num_frames + first_frame) * num_channels
        tl.store(out_ptr + at, high, mask=mask)
        tl.store(out_ptr + half_stride + at, low, mask=mask)


def depthwise(x: Tensor, conv: DepthwiseConv, memory: Memory) -> Tensor:
    """x: fp32 [B, T, C], contiguous. Returns the fp16 halves [2, B, T, C] of the result; advances the states."""
    batch, num_frames, num_channels = x.shape
    out = torch.empty(2, batch, num_frames, num_channels, dtype=torch.float16, device=x.device)
    grid = (triton.cdiv(num_frames, BLOCK_FRAMES) + 1, triton.cdiv(num_channels, BLOCK_CHANNELS), batch)
    _depthwise[grid](
        x, *memory, conv.params, out, num_frames, num_channels, conv.dilation, memory.past.shape[1],
        conv.state_offset, out.stride(0),
        KEPT=KEPT_FRAMES, BLOCK_T=BLOCK_FRAMES, BLOCK_C=BLOCK_CHANNELS,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["num_frames"])
def _last(
    x_ptr, past_ptr, states_ptr, slots_ptr, weights_ptr, bias_ptr, audio_ptr,
    num_frames, num_channels, state_size, state_offset,
    KEPT: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    channel = tl.arange(0, BLOCK_C)
    x_ptr += row * num_frames * num_channels
    past_ptr += row * state_size + state_offset
    first_frame = block * BLOCK_T
    if first_frame >= num_frames:  # the program behind the last block
        state_ptr = states_ptr + tl.load(slots_ptr + row) * state_size + state_offset
        keep_frames(x_ptr, past_ptr, state_ptr, channel, num_frames, num_channels, TAPS - 1, FRAMES=KEPT)
    else:
        frame = tl.arange(0, BLOCK_T)
        terms = tap_sum(x_ptr, past_ptr, weights_ptr, first_frame, frame, channel, num_frames, num_channels, 1)
        total = tl.sum(terms, axis=1) + tl.load(bias_ptr)
        audio = 2.0 / (1.0 + tl.exp(-2.0 * total)) - 1.0  # tanh
        tl.store(audio_ptr + row * num_frames + first_frame + frame, audio, mask=first_frame + frame < num_frames)


def last_conv(x: Tensor, conv: LastConv, memory: Memory) -> Tensor:
    """x: fp32 [B, T, C], contiguous. Returns the audio [B, T] in [-1, 1]; advances the states."""
    batch, num_frames, num_channels = x.shape
    audio = x.new_empty(batch, num_frames)
    block_c = block_of(num_channels)
    block_t = max(16, LAST_BLOCK // block_c)
    _last[(triton.cdiv(num_frames, block_t) + 1, batch)](
        x, *memory, conv.weights, conv.bias, audio, num_frames, num_channels, memory.past.shape[1], conv.state_offset,
        KEPT=8, BLOCK_T=block_t, BLOCK_C=block_c,
    )  # fmt: skip
    return audio
