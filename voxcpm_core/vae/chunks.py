"""Long audio goes through an encoder in chunks: that takes little memory, and whoever else is at work may go on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.config import VaeConfig
from voxcpm_core.types import PadSide

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


class ChunkedEncoder(ABC):
    """Gives the mean of the latents, nothing is sampled."""

    config: VaeConfig
    fills_up = False  # whether silence makes the last chunk as long as all others

    @abstractmethod
    def new_state(self, batch: int) -> Tensor:
        """What is kept from chunk to chunk, for fresh waveforms. # [B, state_size]"""

    @abstractmethod
    def encode_chunk(self, chunk: Tensor, state: Tensor) -> Tensor:
        """chunk: [B, 1, samples], whole frames; advances `state`. # [B, latent_dim, frames]"""

    def encode(self, waveform: Tensor) -> Tensor:
        """Encode `waveform` [B, N >= 1] at the encoder's rate, padded on the right to a whole frame.

        Returns [B, latent_dim, frames].
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
        hop = self.config.hop_length
        num_frames = -(-waveform.shape[-1] // hop)
        unit = CHUNK_FRAMES * hop if self.fills_up else hop
        padded = F.pad(waveform, (0, -waveform.shape[-1] % unit)).unsqueeze(1)  # [B, 1, samples]
        state = self.new_state(padded.shape[0])
        chunks = padded.split(CHUNK_FRAMES * hop, dim=-1)
        encoded = []
        for index, chunk in enumerate(chunks, start=1):
            encoded.append(self.encode_chunk(chunk, state))
            if index < len(chunks):
                yield
        return torch.cat(encoded, dim=-1)[..., :num_frames]
