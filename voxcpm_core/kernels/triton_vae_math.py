"""What the AudioVAE's kernels share: the snake, fp16 halves of fp32 values, and taps that reach into a stream's past.

Activations are channels-last. Products of fp32 matrices run on fp16 tensor cores: with x = high + low, both fp16, the
sum of high * high, low * high and high * low misses 2^-22 of the whole, in half the operations' time that TF32 takes.
"""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

TAPS = tl.constexpr(7)  # of the depthwise convolutions and of the last one
# sin(pi f) / f in powers of f^2, for |f| <= 1/2, within 4e-9.
SINE_0 = tl.constexpr(3.141592502593994)
SINE_1 = tl.constexpr(-5.1677069664001465)
SINE_2 = tl.constexpr(2.5500314235687256)
SINE_3 = tl.constexpr(-0.5980451703071594)
SINE_4 = tl.constexpr(0.0772201269865036)
TO_WHOLE = tl.constexpr(12582912.0)  # 1.5 * 2^23: adding it leaves a float no fraction
MAX_HALF = tl.constexpr(65504.0)


class Memory(NamedTuple):
    """The state of a batch's streams. Kernels read it as it was and write it where it is kept, so none overwrites what
    another still reads."""

    past: Tensor  # fp32 [B, state_size], a copy
    states: Tensor  # fp32 [num_slots, state_size]
    slots: Tensor  # int64 [B]


def block_of(size: int) -> int:
    """The channels of a block that holds `size`: a power of two, as a matrix product takes it."""
    return max(16, triton.next_power_of_2(size))


@triton.jit
def snake(x, alpha, inverse):
    """x + inverse * sin(pi * alpha * x)^2 in fp32. The sine is squared, so a whole number of half turns is left out."""
    turns = x * alpha
    turns -= (turns + TO_WHOLE) - TO_WHOLE
    square = turns * turns
    sine = turns * (SINE_0 + square * (SINE_1 + square * (SINE_2 + square * (SINE_3 + square * SINE_4))))
    return x + inverse * (sine * sine)


@triton.jit
def halves(x):
    """The fp16 values high and low with x = high + low. Clamped: an infinite value would stay in its stream's state."""
    x = tl.minimum(tl.maximum(x, -MAX_HALF), MAX_HALF)
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def tap_sum(
    x_ptr, past_ptr, weights_ptr, first_frame, frame, channel, num_frames, num_channels, dilation,
):  # fmt: skip
    """Frames times weights [TAPS, C], not yet summed over channels, for the frames first_frame + frame. # [frame, C]

    x_ptr: the stream's [T, C]; past_ptr: the frames before it, [(TAPS - 1) * dilation, C].
    """
    now, is_channel = first_frame + frame, channel < num_channels
    inside = (now < num_frames)[:, None] & is_channel[None, :]
    at = frame[:, None] * num_channels + channel[None, :]
    rows_ptr = x_ptr + first_frame.to(tl.int64) * num_channels
    weights_ptr += channel
    total = tl.zeros((frame.shape[0], channel.shape[0]), tl.float32)
    for tap in tl.static_range(TAPS):
        back = dilation * (TAPS - 1 - tap)
        mask = inside & (now >= back)[:, None]
        weight = tl.load(weights_ptr + tap * num_channels, mask=is_channel, other=0.0)
        total += tl.load(rows_ptr - back * num_channels + at, mask=mask, other=0.0) * weight[None, :]
    if first_frame < dilation * (TAPS - 1):
        past_ptr += first_frame * num_channels
        for tap in tl.static_range(TAPS):
            mask = inside & (now < dilation * (TAPS - 1 - tap))[:, None]
            weight = tl.load(weights_ptr + tap * num_channels, mask=is_channel, other=0.0)
            total += tl.load(past_ptr + dilation * tap * num_channels + at, mask=mask, other=0.0) * weight[None, :]
    return total


@triton.jit
def keep_frames(
    x_ptr, past_ptr, state_ptr, channel, num_frames, num_channels, frames_kept, FRAMES: tl.constexpr,
):  # fmt: skip
    """Write the last `frames_kept` <= FRAMES of the past and x, pointers of one stream, to its state."""
    frame = tl.arange(0, FRAMES)
    source = num_frames - frames_kept + frame  # in x; negative: in the past, whose frame num_frames becomes the first
    mask = (frame < frames_kept)[:, None] & (channel < num_channels)[None, :]
    at = frame[:, None] * num_channels + channel[None, :]
    rows_ptr = x_ptr + (num_frames - frames_kept).to(tl.int64) * num_channels
    new = tl.load(rows_ptr + at, mask=mask & (source >= 0)[:, None], other=0.0)
    old_ptr = past_ptr + num_frames.to(tl.int64) * num_channels
    old = tl.load(old_ptr + at, mask=mask & (source < 0)[:, None], other=0.0)
    tl.store(state_ptr + at, new + old, mask=mask)
