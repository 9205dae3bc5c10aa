"""The decoder of `audiovae`. Imported with its first stream: it brings torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from voxcpm_core.checkpoint.read import read_vae_tensors
from voxcpm_core.config import ModelConfig
from voxcpm_core.types import FloatArray
from voxcpm_core.vae import VaeDecoder


class LoadedDecoder:
    """Weights on a device ("cpu", "cuda:0")."""

    def __init__(self, folder: Path, model: ModelConfig, device: str) -> None:
        """Raises CheckpointError."""
        torch.backends.cudnn.allow_tf32 = False  # as in the engine: it would move the audio audibly
        tensors = read_vae_tensors(folder, model)
        self._decoder = VaeDecoder.from_tensors(model.vae, tensors, device)
        self._patch_size = model.patch_size
        self._device = torch.device(device)

    def stream(self, context: FloatArray) -> StreamDecoding:
        """A stream that starts with latents [frames, feat_dim], or none, which are not heard."""
        return StreamDecoding(self._decoder, self._patch_size, self._device, context)


class StreamDecoding:
    """One stream. Patches are decoded one by one, as in the engine, so that the samples are the same."""

    def __init__(self, decoder: VaeDecoder, patch_size: int, device: torch.device, context: FloatArray) -> None:
        self._decoder = decoder
        self._patch_size = patch_size
        self._device = device
        self._state = decoder.new_state(1)
        if len(context):
            self._decode(context)

    def decode(self, latents: FloatArray) -> FloatArray:
        """Whole patches [frames, feat_dim] to samples [n] in [-1, 1]."""
        patches = np.split(latents, range(self._patch_size, len(latents), self._patch_size))
        return np.concatenate([self._decode(patch) for patch in patches])

    def _decode(self, latents: FloatArray) -> FloatArray:
        rows = torch.from_numpy(np.array(latents)).to(self._device).t().unsqueeze(0)  # [1, feat_dim, frames]
        with torch.inference_mode():
            audio: FloatArray = self._decoder.decode(rows, self._state)[0].cpu().numpy()
        return audio
