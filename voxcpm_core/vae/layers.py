"""The causal layers that encoder and decoder are made of.

Every layer takes `x` [B, C, T] and, where it looks back in time, the state rows [B, state_size], which it
updates in place. Shapes alone decide what runs, so a step can be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voxcpm_core.config.vae import RES_UNIT_DILATIONS, RES_UNIT_KERNEL
from voxcpm_core.vae.state import StateLayout
from voxcpm_core.vae.tensors import VaeTensors

SNAKE_EPS = 1e-9


class Constants(nn.Module):
    """A module whose tensors move with it, but are neither trained nor saved."""

    def constant(self, name: str, value: Tensor) -> None:
        self.register_buffer(name, value, persistent=False)


class Snake(Constants):
    """x + sin(alpha x)^2 / (alpha + eps), per channel."""

    alpha: Tensor  # [1, C, 1]
    inverse: Tensor  # [1, C, 1]

    def __init__(self, tensors: VaeTensors, name: str, channels: int) -> None:
        super().__init__()
        alpha = tensors.get(f"{name}.alpha", (1, channels, 1))
        self.constant("alpha", alpha)
        self.constant("inverse", (alpha + SNAKE_EPS).reciprocal())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inverse * torch.sin(self.alpha * x).square()


class PointwiseConv(Constants):
    """A convolution of kernel 1: no look back, no state."""

    weight: Tensor  # [out, in, 1]
    bias: Tensor  # [out]

    def __init__(self, tensors: VaeTensors, name: str, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.constant("weight", tensors.folded(name, (out_channels, in_channels, 1)))
        self.constant("bias", tensors.get(f"{name}.bias", (out_channels,)))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv1d(x, self.weight, self.bias)


class CausalConv(Constants):
    """A convolution over the `left_frames` frames before x and x itself."""

    weight: Tensor  # [out, in / groups, kernel]
    bias: Tensor  # [out]

    def __init__(
        self,
        tensors: VaeTensors,
        layout: StateLayout,
        name: str,
        in_channels: int,
        out_channels: int,
        kernel: int,
        *,
        dilation: int = 1,
        stride: int = 1,
        groups: int = 1,
        left_frames: int | None = None,
    ) -> None:
        super().__init__()
        self.constant("weight", tensors.folded(name, (out_channels, in_channels // groups, kernel)))
        self.constant("bias", tensors.get(f"{name}.bias", (out_channels,)))
        self.dilation, self.stride, self.groups = dilation, stride, groups
        self.past = layout.reserve(name, in_channels, (kernel - 1) * dilation if left_frames is None else left_frames)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """[B, in, T] to [B, out, T / stride]; T is a multiple of the stride."""
        return F.conv1d(self.past.extend(x, state), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class CausalUpsample(Constants):
    """A transposed convolution of kernel 2 * stride: an output frame depends on one input frame and the one before."""

    weight: Tensor  # [in, out, 2 * stride]
    bias: Tensor  # [out]

    def __init__(
        self, tensors: VaeTensors, layout: StateLayout, name: str, in_channels: int, out_channels: int, stride: int
    ) -> None:
        super().__init__()
        self.constant("weight", tensors.folded(name, (in_channels, out_channels, 2 * stride)))
        self.constant("bias", tensors.get(f"{name}.bias", (out_channels,)))
        self.stride = stride
        self.past = layout.reserve(name, in_channels, 1)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        """[B, in, T] to [B, out, T * stride]."""
        full = F.conv_transpose1d(self.past.extend(x, state), self.weight, self.bias, self.stride)
        # the first stride is the previous frame's, already given out; the last still lacks the next frame's share
        return full[..., self.stride : -self.stride]


class ResUnit(nn.Module):
    """x + pointwise(snake(dilated(snake(x))))."""

    def __init__(
        self, tensors: VaeTensors, layout: StateLayout, name: str, channels: int, dilation: int, depthwise: bool
    ) -> None:
        super().__init__()
        self.snake_in = Snake(tensors, f"{name}.block.0", channels)
        self.dilated = CausalConv(
            tensors,
            layout,
            f"{name}.block.1",
            channels,
            channels,
            RES_UNIT_KERNEL,
            dilation=dilation,
            groups=channels if depthwise else 1,
        )
        self.snake_out = Snake(tensors, f"{name}.block.2", channels)
        self.pointwise = PointwiseConv(tensors, f"{name}.block.3", channels, channels)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return x + self.pointwise(self.snake_out(self.dilated(self.snake_in(x), state)))


def res_units(
    tensors: VaeTensors, layout: StateLayout, block: str, first_index: int, channels: int, depthwise: bool
) -> nn.ModuleList:
    """The residual units of a block; they stand at consecutive indices of it."""
    return nn.ModuleList(
        ResUnit(tensors, layout, f"{block}.{first_index + i}", channels, dilation, depthwise)
        for i, dilation in enumerate(RES_UNIT_DILATIONS)
    )
