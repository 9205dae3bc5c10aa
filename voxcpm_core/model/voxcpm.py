"""The whole acoustic model: prefill and one decode step, on tensors that the caller owns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.layer_ops import LayerOps
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.lora.slots import LoraSlots
from voxcpm_core.model.dit import LocalDiT
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.language_model import LanguageModel, LmOutput, Text
from voxcpm_core.model.local_encoder import LocalEncoder
from voxcpm_core.model.weights import WeightSource

AUDIO_ROW = -1  # in the place of a token id


class StreamState(NamedTuple):
    """What a stream carries from one step to the next, row by row."""

    lm_hidden: Tensor  # [B, hidden]
    res_hidden: Tensor  # [B, hidden]
    last_patch: Tensor  # [B, P, C]


class VoxCPMModel:
    """Everything but the AudioVAE."""

    def __init__(
        self, config: ModelConfig, source: WeightSource, num_positions: int, lora: LoraSlots | None = None
    ) -> None:
        """`lora`: the adapters that `source` knows of."""
        self.config = config
        self.lora = lora
        self.device, self.dtype = source.device, source.dtype
        self.local_encoder = LocalEncoder.load(config, source)
        self.language_model = LanguageModel(config, source, num_positions)
        self.dit = LocalDiT(config, source)
        self._lm_to_dit = source.linear("lm_to_dit_proj")
        self._res_to_dit = source.linear("res_to_dit_proj")

    @classmethod
    def load(
        cls, config: ModelConfig, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype,
        num_positions: int, ops: LayerOps | None = None, lora: LoraSlots | None = None, fp8: bool = False,
    ) -> VoxCPMModel:
        """Build from checkpoint tensors; `num_positions` bounds the LM positions of one request.

        `fp8`: the products of blocks keep their weights in float8.
        """
        return cls(config, WeightSource(tensors, device, dtype, ops, lora, fp8), num_positions, lora)

    def adapted(self, slots: Tensor, rows: Tensor | None = None) -> AbstractContextManager[None]:
        """Inside, sequence b has the adapter in slot slots[b], with `rows` slots[rows[b]]. slots, rows: int64 [B].

        Where no adapters are served, and while nobody has one, this does nothing at all.
        """
        lora = self._lora_in_use
        return nullcontext() if lora is None else lora.rows(slots if rows is None else slots[rows])

    def adapted_by(self, slot: int) -> AbstractContextManager[None]:
        """Inside, all sequences have the adapter in that slot."""
        lora = self._lora_in_use
        return nullcontext() if lora is None else lora.one(slot)

    @property
    def is_plain(self) -> bool:
        """Whether adapters are left out of what runs now: none are served, or nobody in the batch at hand has one."""
        return self._lora_in_use is None

    @property
    def _lora_in_use(self) -> LoraSlots | None:
        return None if self.lora is None or self.lora.is_idle else self.lora

    def variants(self) -> Iterator[None]:
        """For loops over all that a batch may be: with adapters, where they are served, and then without."""
        if self.lora is not None:
            self.lora.is_idle = False
            yield
            self.lora.is_idle = True
        yield

    def prefill(
        self, token_ids: Tensor, audio: Tensor, last: Tensor, cache: KvCache, context: PagedContext
    ) -> LmOutput:
        """Run the whole prefixes of some requests; returns what conditions their patches 0.

        token_ids: int64 [B, T], AUDIO_ROW where a patch stands; audio: [B, T, hidden], the local encoder's embeddings
        there and zero elsewhere; last: int64 [B], the row in which each prefix ends: what follows fills it up.
        """
        is_audio = token_ids == AUDIO_ROW
        text = Text(self.language_model.embed_text(token_ids.clamp(min=0)), is_audio, last)
        return self.language_model(text, audio, cache, context)

    def conditioning(self, lm_hidden: Tensor, res_hidden: Tensor) -> Tensor:
        """mu of the DiT: [B, hidden] twice -> [B, mu_size]."""
        lm, res = self._lm_to_dit(lm_hidden), self._res_to_dit(res_hidden)
        return torch.cat((lm, res), dim=-1) if self.config.mu_tokens else lm + res

    def generate_patch(self, state: StreamState, noise: Tensor, cfg_value: Tensor, num_steps: int) -> Tensor:
        """noise: [B, P, C], scaled by the temperature; cfg_value: float32 [B] -> patch [B, P, C]."""
        mu = self.conditioning(state.lm_hidden, state.res_hidden)
        return self.dit.solve(noise, mu, state.last_patch, cfg_value, num_steps)

    def advance(self, patch: Tensor, cache: KvCache, context: PagedContext) -> LmOutput:
        """Feed a patch [B, P, C] back through local encoder and language models."""
        embedded = self.local_encoder(patch).unsqueeze(1)  # [B, 1, hidden]
        return self.language_model(None, embedded, cache, context)
