"""The AudioVAE encoder: waveform to latents, for prompts and references."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voxcpm_core.config import VaeConfig
from voxcpm_core.types import PadSide
from voxcpm_core.vae.layers import CausalConv, Snake, res_units
from voxcpm_core.vae.state import StateLayout
from voxcpm_core.vae.tensors import VaeTensors

FIRST_KERNEL = 7
MEAN_KERNEL = 3
# A minute of audio at once would need gigabytes for the first block alone, and hold up whoever else uses the device.
CHUNK_FRAMES = 64

InChunks = Generator[None, None, Tensor]  # work that pauses between chunks, and returns its result


def at_once(work: InChunks) -> Tensor:
    """The result without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: Tensor = ended.value
            return result


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


class VaeEncoder(nn.Module):
    """Encoder of AudioVAE V1 and V2; gives the mean of the latents, nothing is sampled."""

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

    def encode(self, waveform: Tensor) -> Tensor:
        """Encode `waveform` [B, N >= 1] at the encoder's rate, padded on the right to a whole frame.

        Returns [B, latent_dim, frames]. Long audio goes through in chunks, which changes memory, not values.
        """
        return at_once(self._encode(waveform))

    def encode_patches(self, waveform: Tensor, patch_size: int, pad: PadSide) -> InChunks:
        """Encode one `waveform` [N >= 1] as whole patches [patches, patch_size, latent_dim], with a pause after chunks.

        Silence fills the first patch (`pad="left"`, for a prompt, whose end the speech continues) or the last
        (`pad="right"`, for a reference).
        """
        missing = -waveform.shape[0] % (patch_size * self.config.hop_length)
        padded = F.pad(waveform, (missing, 0) if pad == "left" else (0, missing))
        latents = (yield from self._encode(padded.unsqueeze(0)))[0]  # [latent_dim, patches * patch_size]
        return latents.view(latents.shape[0], -1, patch_size).permute(1, 2, 0).contiguous()

    def _encode(self, waveform: Tensor) -> InChunks:
        padded = F.pad(waveform, (0, -waveform.shape[-1] % self.config.hop_length)).unsqueeze(1)  # [B, 1, samples]
        state = self.layout.zeros(padded.shape[0], padded.device)
        chunks = padded.split(CHUNK_FRAMES * self.config.hop_length, dim=-1)
        encoded = []
        for index, chunk in enumerate(chunks, start=1):
            encoded.append(self._encode_chunk(chunk, state))
            if index < len(chunks):
                yield
        return torch.cat(encoded, dim=-1)

    def _encode_chunk(self, chunk: Tensor, state: Tensor) -> Tensor:
        x = self.first(chunk, state)
        for block in self.blocks:
            x = block(x, state)
        return self.mean(x, state)
