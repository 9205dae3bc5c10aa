"""The AudioVAE's residual units in Triton kernels: one kernel each where channels are few, else two."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from voxcpm_core.kernels.triton_vae_conv import DepthwiseConv, depthwise
from voxcpm_core.kernels.triton_vae_math import Memory
from voxcpm_core.kernels.triton_vae_product import Frames, Product, pointwise
from voxcpm_core.kernels.triton_vae_unit import fused_unit
from voxcpm_core.vae.packing import Following, packed_depthwise, packed_pointwise

FUSED_CHANNELS = 128  # most channels of a unit that is one kernel


class Unit(NamedTuple):
    """A residual unit, and the snake of what follows it."""

    conv: DepthwiseConv
    product: Product
    is_fused: bool

    def run(self, frames: Frames, memory: Memory, out_halves: bool, out_border: int = 1) -> Frames:
        """`out_halves`, `out_border`: as `new_frames` has them."""
        if self.is_fused:
            return fused_unit(frames, self.conv, self.product, memory, out_halves, out_border)
        rows = depthwise(frames.snake, self.conv, memory)
        return pointwise(rows, self.product, frames.total, out_halves, out_border)


def packed_units(units: nn.ModuleList, following: Following, fused_channels: int) -> tuple[Unit, ...]:
    """Units that follow one another; `following`: what is done to the result of the last."""
    inner = [Following(unit.snake_in) for unit in units]
    return tuple(
        Unit(
            packed_depthwise(unit.dilated, unit.snake_out), packed_pointwise(unit.pointwise, then),
            unit.pointwise.bias.numel() <= fused_channels,
        )
        for unit, then in zip(units, [*inner[1:], following], strict=True)
    )  # fmt: skip
