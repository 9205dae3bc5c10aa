"""Prompts and references on the device: encoded and embedded, or still there from the time before.

The cache is that of one engine, so its keys need not name a model. Latents depend on the audio and on the side that is
filled up; the local encoder's embeddings also on the adapter, which may change its last product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.runner.tensor_cache import TensorCache
from voxcpm_core.runner.upload import upload
from voxcpm_core.types import Condition, FloatArray, PadSide
from voxcpm_core.vae.chunks import ChunkedEncoder, at_once
from voxcpm_core.vae.chunks import InChunks as Encoding

__all__ = ["ConditionEncoder", "Encoding", "Sound"]

Embed = Callable[[Tensor], Tensor]  # the local encoder: [n, P, C] -> [n, hidden]


class Sound(NamedTuple):
    """A prompt or reference whose latents are known."""

    key: tuple[str, PadSide] | None  # None: nothing is kept
    patches: Tensor  # [n, P, C] in model dtype


class ConditionEncoder:
    """Makes latents and embeddings of conditions, and keeps them, least recently used out."""

    def __init__(
        self, encoder: ChunkedEncoder, config: ModelConfig, device: torch.device, dtype: torch.dtype, max_bytes: int
    ) -> None:
        """`dtype`: the model's; `max_bytes`: of all that is kept, 0 for nothing."""
        self._encoder = encoder
        self._config = config
        self._device = device
        self._dtype = dtype
        self._cache = TensorCache(max_bytes)
        self.num_encodings = 0  # runs of the VAE encoder
        self.num_hits = 0  # conditions that were embedded before
        self.num_misses = 0

    @property
    def max_bytes(self) -> int:
        return self._cache.max_bytes

    @property
    def num_bytes(self) -> int:
        return self._cache.num_bytes

    def begin(self, waveform: FloatArray, pad: PadSide) -> Encoding:
        """Start to encode mono audio [samples]; silence fills it up on one side. Result: float32 [N, P, C]."""
        self.num_encodings += 1
        return self._encoder.encode_patches(upload(waveform, self._device), self._config.patch_size, pad)

    def knows(self, condition: Condition, pad: PadSide) -> bool:
        """Whether its latents are there."""
        return condition.latents is not None or (self.max_bytes > 0 and (condition.digest, pad) in self._cache)

    def sound(self, condition: Condition, pad: PadSide, encoded: Tensor | None = None) -> Sound:
        """The latents of a condition, which may have been encoded before for this request. # encoded: [N, P, C]"""
        if not self.max_bytes:
            return Sound(None, self._patches(condition, pad, encoded))
        key = condition.digest, pad
        patches = self._cache.get(key)
        if patches is None:
            patches = self._patches(condition, pad, encoded)
            self._cache.put(key, patches)
        return Sound(key, patches)

    @torch.inference_mode()
    def remember(self, condition: Condition, pad: PadSide, encoded: Tensor) -> None:
        """Let others who have the same audio know its latents already. encoded: [N, P, C]."""
        self.sound(condition, pad, encoded)

    def embedded(self, sounds: Sequence[Sound], lora_digest: str, embed: Embed) -> list[Tensor]:
        """Embeddings [n, hidden] of each; all that are not known at once. `lora_digest`: "" without an adapter."""
        keys = [(sound.key, lora_digest) for sound in sounds]
        found = {index: rows for index, key in enumerate(keys) if (rows := self._cache.get(key)) is not None}
        missing = [index for index in range(len(sounds)) if index not in found]
        self.num_hits += len(found)
        self.num_misses += len(missing)
        if missing:
            patches = [sounds[index].patches for index in missing]
            rows = embed(torch.cat(patches))
            for index, part in zip(missing, rows.split([len(each) for each in patches]), strict=True):
                found[index] = part.clone()  # a part alone would hold the memory of all
                if self.max_bytes:
                    self._cache.put(keys[index], found[index])
        return [found[index] for index in range(len(sounds))]

    def clear(self) -> None:
        """Forget all."""
        self._cache.clear()

    def _patches(self, condition: Condition, pad: PadSide, encoded: Tensor | None) -> Tensor:
        if encoded is not None:
            return encoded.to(self._dtype)
        if condition.latents is not None:
            patches = upload(condition.latents, self._device).unflatten(0, (-1, self._config.patch_size))
            return patches.to(self._dtype)
        assert condition.waveform is not None  # it was known when the request came, and has been thrown out since
        return at_once(self.begin(condition.waveform, pad)).to(self._dtype)
