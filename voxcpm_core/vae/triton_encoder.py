"""The AudioVAE encoder on a CUDA device, in the kernels of the decoder, for one waveform at a time.

A convolution that is neither depthwise nor pointwise is a product whose rows are windows that overlap, over frames with
those of the chunk before in front of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.kernels.triton_vae_math import MAX_HALF, Memory
from voxcpm_core.kernels.triton_vae_product import Frames, Product, windowed
from voxcpm_core.vae.chunks import ChunkedEncoder
from voxcpm_core.vae.encoder import EncoderBlock, VaeEncoder
from voxcpm_core.vae.layers import CausalConv
from voxcpm_core.vae.packing import Following, packed_windows
from voxcpm_core.vae.state import StateSlice
from voxcpm_core.vae.triton_units import FUSED_CHANNELS, Unit, packed_units

ROW_ALIGNMENT = 16  # values between the halves of samples: of other numbers kernels would be compiled again


class Windows(NamedTuple):
    """A convolution over windows of frames."""

    product: Product
    num_frames: int  # of a window
    stride: int
    past: StateSlice  # its frames stand before those of a chunk

    @classmethod
    def of(cls, conv: CausalConv, following: Following) -> Windows:
        return cls(packed_windows(conv, following), conv.weight.shape[2], conv.stride, conv.past)

    def run(self, frames: Tensor, num_rows: int, out_halves: bool = False, out_border: int = 1) -> Frames:
        """frames: fp16 halves [2, F, C]; `out_halves`, `out_border`: as `new_frames` has them."""
        half_stride, channels = frames.stride(0), frames.shape[2]
        shape = 2, 1, num_rows, self.num_frames * channels
        rows = frames.as_strided(shape, (half_stride, half_stride, self.stride * channels, 1))
        return windowed(rows, self.product, out_halves, out_border)


class Level(NamedTuple):
    """The units of a block and its downsampling."""

    units: tuple[Unit, ...]
    downsample: Windows


class TritonVaeEncoder(ChunkedEncoder):
    """Its chunks are all of one length, as kernels are compiled for that."""

    fills_up = True

    def __init__(self, encoder: VaeEncoder, fused_channels: int = FUSED_CHANNELS) -> None:
        """Takes its weights from `encoder`; raises ValueError if that is not depthwise.

        `fused_channels`: up to how many channels a residual unit is one kernel.
        """
        if not encoder.config.depthwise:
            raise ValueError("only depthwise encoders have kernels")
        self.config = encoder.config
        self._state_size = encoder.layout.size
        blocks = [*encoder.blocks]
        begins = [*(Following(block.units[0].snake_in) for block in blocks), Following(None)]
        self._first = Windows.of(encoder.first, begins[0])
        self._levels = [
            _level(block, following, fused_channels) for block, following in zip(blocks, begins[1:], strict=True)
        ]
        self._mean = Windows.of(encoder.mean, Following(None))

    def new_state(self, batch: int) -> Tensor:
        assert batch == 1
        return torch.zeros(batch, self._state_size, device=self._mean.product.params.device)

    def encode_chunk(self, chunk: Tensor, state: Tensor) -> Tensor:
        memory = Memory(state.clone(), state, torch.zeros(1, dtype=torch.int64, device=state.device))
        num_frames = chunk.shape[-1]
        frames = self._first.run(_samples(chunk[0, 0], self._first.past, memory), num_frames)
        for level, following in zip(self._levels, [*self._levels[1:], None], strict=True):
            *inner, end = level.units
            for unit in inner:
                frames = unit.run(frames, memory, out_halves=False)
            windows = level.downsample
            whole = end.run(frames, memory, out_halves=True, out_border=windows.past.frames).snake[:, 0]
            _exchange(whole, windows.past, memory)
            num_frames //= windows.stride
            border = self._mean.past.frames if following is None else 1
            frames = windows.run(whole, num_frames, out_halves=following is None, out_border=border)
        whole = frames.snake[:, 0]
        _exchange(whole, self._mean.past, memory)
        return self._mean.run(whole, num_frames).snake.transpose(1, 2)


def _level(block: EncoderBlock, following: Following, fused_channels: int) -> Level:
    """`following`: what is done to the block's result."""
    units = packed_units(block.units, Following(block.snake), fused_channels)
    return Level(units, Windows.of(block.downsample, following))


def _samples(samples: Tensor, past: StateSlice, memory: Memory) -> Tensor:
    """A chunk as halves, with room for the samples before in front and some behind. # [2, past + T + some, 1]"""
    num_samples = past.frames + len(samples)
    whole = samples.new_zeros(2, -(-num_samples // ROW_ALIGNMENT) * ROW_ALIGNMENT, 1, dtype=torch.float16)
    _store_halves(whole[:, past.frames : num_samples, 0], samples)
    _exchange(whole[:, :num_samples], past, memory)
    return whole


def _exchange(whole: Tensor, past: StateSlice, memory: Memory) -> None:
    """Put the frames of the past before those of a chunk, and keep the last of all. whole: halves [2, past + T, C]."""
    place = slice(past.offset, past.offset + past.size)
    _store_halves(whole[:, : past.frames], memory.past[0, place].view(past.frames, past.channels))
    high, low = whole[:, -past.frames :]
    torch.add(high, low.float(), out=memory.states[0, place].view(past.frames, past.channels))


def _store_halves(halves: Tensor, values: Tensor) -> None:
    """values: fp32 [...], clamped as kernels do; halves: fp16 [2, ...], whose sum they become."""
    values = values.clamp(-MAX_HALF.value, MAX_HALF.value)
    halves[0].copy_(values)
    halves[1].copy_(values - halves[0])
