"""The AudioVAE decoder: latents to audio, for many streams at once, each with its own state row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from voxcpm_core.config import VaeConfig
from voxcpm_core.vae.layers import CausalConv, CausalUpsample, Constants, PointwiseConv, Snake, res_units
from voxcpm_core.vae.state import StateLayout
from voxcpm_core.vae.tensors import VaeTensors

OUTER_KERNEL = 7  # of the first and the last convolution


class StreamDecoder(Protocol):
    """A decoder as the engine runs it, in torch or in other kernels."""

    @property
    def state_size(self) -> int:
        """Floats of one stream's state; all zeros is a fresh stream."""

    def decode_slots(self, latents: Tensor, states: Tensor, slots: Tensor) -> Tensor:
        """Decode the next frames of B streams and advance their states in place.

        `latents` is [B, latent_dim, T] and `states` [num_slots, state_size], both float32, T >= 1 is free; `slots` is
        int64 [B]. A slot may stand more than once only where its state no longer matters, as padding of a batch does.
        Returns the audio [B, T * upsampling] in [-1, 1].
        """


class RateCondition(Constants):
    """Scale and bias of the output sample rate's bucket, per channel."""

    scale: Tensor  # [1, C, 1]
    bias: Tensor  # [1, C, 1]

    def __init__(self, tensors: VaeTensors, name: str, config: VaeConfig, channels: int) -> None:
        super().__init__()
        shape = (len(config.sample_rate_boundaries) + 1, channels)
        for constant in ("scale", "bias"):
            rows = tensors.get(f"{name}.{constant}_embed.weight", shape)
            self.constant(constant, rows[config.sample_rate_bucket].view(1, -1, 1).clone())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.bias


class DecoderBlock(nn.Module):
    """Upsamples by one rate, halving the channels."""

    def __init__(self, tensors: VaeTensors, layout: StateLayout, config: VaeConfig, level: int, index: int) -> None:
        super().__init__()
        in_channels, out_channels = config.decoder_dim >> level, config.decoder_dim >> (level + 1)
        name = f"decoder.model.{index}.block"
        condition = f"decoder.sr_cond_model.{index}"
        conditioned = bool(config.sample_rate_boundaries)
        self.condition = RateCondition(tensors, condition, config, in_channels) if conditioned else nn.Identity()
        self.snake = Snake(tensors, f"{name}.0", in_channels)
        stride = config.decoder_rates[level]
        self.upsample = CausalUpsample(tensors, layout, f"{name}.1", in_channels, out_channels, stride)
        self.units = res_units(tensors, layout, name, 2, out_channels, config.depthwise)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        x = self.upsample(self.snake(self.condition(x)), state)
        for unit in self.units:
            x = unit(x, state)
        return x


class VaeDecoder(nn.Module):
    """Decoder of AudioVAE V1 and V2.

    A stream's state is one row of `state_size` floats; a row of zeros is a fresh stream. Decoding a stream in
    chunks of any sizes gives the samples of decoding it whole, and rows do not influence each other.
    """

    def __init__(self, config: VaeConfig, tensors: VaeTensors) -> None:
        super().__init__()
        self.config = config
        self.layout = StateLayout()
        latent, width = config.latent_dim, config.decoder_dim
        first = "decoder.model.0"
        self.head: nn.Module
        if config.depthwise:
            self.first = CausalConv(tensors, self.layout, first, latent, latent, OUTER_KERNEL, groups=latent)
            self.head = PointwiseConv(tensors, "decoder.model.1", latent, width)
            index = 2
        else:
            self.first = CausalConv(tensors, self.layout, first, latent, width, OUTER_KERNEL)
            self.head = nn.Identity()
            index = 1
        num_blocks = len(config.decoder_rates)
        self.blocks = nn.ModuleList(
            DecoderBlock(tensors, self.layout, config, level, index + level) for level in range(num_blocks)
        )
        channels, index = width >> num_blocks, index + num_blocks
        self.snake = Snake(tensors, f"decoder.model.{index}", channels)
        self.last = CausalConv(tensors, self.layout, f"decoder.model.{index + 1}", channels, 1, OUTER_KERNEL)

    @classmethod
    def from_tensors(
        cls, config: VaeConfig, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu"
    ) -> VaeDecoder:
        """Build it from the tensors of an AudioVAE file; raises CheckpointError for a missing or misshapen one."""
        return cls(config, VaeTensors(tensors, device))

    @property
    def state_size(self) -> int:
        """Floats of one stream's state."""
        return self.layout.size

    def new_state(self, num_rows: int) -> Tensor:
        """State of `num_rows` fresh streams. # [num_rows, state_size]"""
        return self.layout.zeros(num_rows, self.last.weight.device)

    def decode(self, latents: Tensor, state: Tensor) -> Tensor:
        """Decode the next frames of B streams and advance their state in place.

        `latents` is [B, latent_dim, T] and `state` [B, state_size], both float32; T >= 1 is free.
        Returns the audio [B, T * upsampling] in [-1, 1].
        """
        x = self.head(self.first(latents, state))
        for block in self.blocks:
            x = block(x, state)
        return torch.tanh(self.last(self.snake(x), state)).squeeze(1)

    def decode_slots(self, latents: Tensor, states: Tensor, slots: Tensor) -> Tensor:
        """`decode` for the rows `slots` of a buffer of states, as StreamDecoder has it."""
        rows = states.index_select(0, slots)
        audio = self.decode(latents, rows)
        states.index_copy_(0, slots, rows)
        return audio

    def decode_offline(self, latents: Tensor) -> Tensor:
        """Decode whole streams [B, latent_dim, T] from their start. # [B, T * upsampling]"""
        return self.decode(latents, self.new_state(latents.shape[0]))
