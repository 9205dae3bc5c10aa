"""The AudioVAE decoder on a CUDA device, in Triton kernels over channels-last activations.

Between two convolutions over time lies one kernel: product, residual sum, and the snake that the next one reads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.kernels.triton_vae_conv import LastConv, depthwise, last_conv
from voxcpm_core.kernels.triton_vae_math import Memory
from voxcpm_core.kernels.triton_vae_product import Product, pointwise, upsample
from voxcpm_core.vae.decoder import DecoderBlock, VaeDecoder
from voxcpm_core.vae.packing import Following, packed_depthwise, packed_pointwise, packed_upsample
from voxcpm_core.vae.triton_units import FUSED_CHANNELS, Unit, packed_units


class Level(NamedTuple):
    """Upsampling by one rate and the units behind it."""

    product: Product
    num_channels: int
    state_offset: int
    units: tuple[Unit, ...]


class TritonVaeDecoder:
    """A StreamDecoder; its state rows are laid out otherwise than those of `VaeDecoder`."""

    def __init__(self, decoder: VaeDecoder, fused_channels: int = FUSED_CHANNELS) -> None:
        """Takes its weights from `decoder`; raises ValueError if that is not depthwise.

        `fused_channels`: up to how many channels a residual unit is one kernel.
        """
        if not decoder.config.depthwise:
            raise ValueError("only depthwise decoders have kernels")
        self.config = decoder.config
        self.state_size = decoder.state_size
        blocks = [*decoder.blocks]
        # Whatever a block begins with is done by the product before it.
        followings = [*(Following(block.snake, block.condition) for block in blocks), Following(decoder.snake)]
        self._first = packed_depthwise(decoder.first, None)
        self._head = packed_pointwise(decoder.head, followings[0])
        self._levels = [
            _level(block, following, fused_channels)
            for block, following in zip(blocks, followings[1:], strict=True)
        ]
        last = decoder.last
        self._last = LastConv(last.weight[0].t().contiguous(), last.bias, last.past.offset)

    def new_state(self, num_rows: int) -> Tensor:
        """State of `num_rows` fresh streams. # [num_rows, state_size]"""
        return torch.zeros(num_rows, self.state_size, device=self._last.bias.device)

    def decode_slots(self, latents: Tensor, states: Tensor, slots: Tensor) -> Tensor:
        """As StreamDecoder has it."""
        memory = Memory(states.index_select(0, slots), states, slots)
        x = latents.transpose(1, 2).contiguous()  # [B, T, latent_dim]
        rows = depthwise(x, self._first, memory)
        frames = pointwise(rows, self._head, None, out_halves=True)
        for level in self._levels:
            frames = upsample(frames.snake, level.product, level.num_channels, memory, level.state_offset)
            *inner, end = level.units
            for unit in inner:
                frames = unit.run(frames, memory, out_halves=False)
            frames = end.run(frames, memory, out_halves=level is not self._levels[-1])
        return last_conv(frames.snake, self._last, memory)


def _level(block: DecoderBlock, following: Following, fused_channels: int) -> Level:
    """`following`: what is done to the block's result."""
    product = packed_upsample(block.upsample, Following(block.units[0].snake_in))
    units = packed_units(block.units, following, fused_channels)
    return Level(product, block.upsample.bias.numel(), block.upsample.past.offset, units)
