"""The AudioVAE encoder: waveform to latents, for prompts and references."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from voxcpm_core.config import VaeConfig
from voxcpm_core.vae.chunks import ChunkedEncoder
from voxcpm_core.vae.layers import CausalConv, Snake, res_units
from voxcpm_core.vae.state import StateLayout
from voxcpm_core.vae.tensors import VaeTensors

FIRST_KERNEL = 7
MEAN_KERNEL = 3


class EncoderBlock(nn.Module):
    """Downsamples by one rate, doubling the channels."""

    def __init__(self, tensors: VaeTensors, layout: StateLayout, config: VaeConfig, level: int) -> None:
        super().__init__()
        channels, stride = config.encoder_dim << level, config.encoder_rates[level]
        name = f"encoder.block.{level + 1}.block"
        self.units = res_units(tensors, layout, name, 0, channels, config.depthwise)
        self.snake = Snake(tensors, f"{name}.3", channels)
        left_frames = stride + stride % 2 if config.even_stride_padding else stride
        self.downsample = CausalConv(
            tensors, layout, f"{name}.4", channels, 2 * channels, 2 * stride, stride=stride, left_frames=left_frames
        )

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        for unit in self.units:
            x = unit(x, state)
        return self.downsample(self.snake(x), state)


class VaeEncoder(nn.Module, ChunkedEncoder):
    """Encoder of AudioVAE V1 and V2."""

    def __init__(self, config: VaeConfig, tensors: VaeTensors) -> None:
        super().__init__()
        self.config = config
        self.layout = StateLayout()
        self.first = CausalConv(tensors, self.layout, "encoder.block.0", 1, config.encoder_dim, FIRST_KERNEL)
        num_blocks = len(config.encoder_rates)
        self.blocks = nn.ModuleList(EncoderBlock(tensors, self.layout, config, level) for level in range(num_blocks))
        channels = config.encoder_dim << num_blocks
        self.mean = CausalConv(tensors, self.layout, "encoder.fc_mu", channels, config.latent_dim, MEAN_KERNEL)

    @classmethod
    def from_tensors(
        cls, config: VaeConfig, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu"
    ) -> VaeEncoder:
        """Build it from the tensors of an AudioVAE file; raises CheckpointError for a missing or misshapen one."""
        return cls(config, VaeTensors(tensors, device))

    def new_state(self, batch: int) -> Tensor:
        return self.layout.zeros(batch, self.mean.bias.device)

    def encode_chunk(self, chunk: Tensor, state: Tensor) -> Tensor:
        x = self.first(chunk, state)
        for block in self.blocks:
            x = block(x, state)
        return self.mean(x, state)
