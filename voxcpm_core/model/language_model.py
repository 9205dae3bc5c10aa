"""Base LM, the quantisation bottleneck, residual LM and stop head."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.transformer import Transformer
from voxcpm_core.model.weights import Linear, WeightSource


class Text(NamedTuple):
    """What of a prefill is text, and where each sequence ends; what follows its end is there to fill it up."""

    embedded: Tensor  # [B, T, hidden], read in text rows
    is_audio: Tensor  # bool [B, T]
    last: Tensor  # int64 [B], the last row of each sequence


class LmOutput(NamedTuple):
    """State of the last row of each sequence, which conditions the next patch."""

    lm_hidden: Tensor  # [B, hidden]
    res_hidden: Tensor  # [B, hidden]
    stop: Tensor  # bool [B]: the stop head wants the next patch to be the last


class LanguageModel:
    """Both causal stacks over one paged cache."""

    def __init__(self, config: ModelConfig, source: WeightSource, num_positions: int) -> None:
        self._embed_scale = config.embed_scale
        self._fsq_scale = config.fsq_scale
        self._embed_tokens = source.tensor("base_lm.embed_tokens.weight")  # [vocab, hidden]
        self.base = Transformer.load(config.base_lm, source, "base_lm", num_positions)
        self.residual = Transformer.load(config.residual_lm, source, "residual_lm", num_positions)
        self._fsq_in = source.linear("fsq_layer.in_proj")
        self._fsq_out = source.linear("fsq_layer.out_proj")
        self._fusion: Linear | None = source.linear("fusion_concat_proj") if config.fusion == "concat" else None
        self._stop_proj = source.linear("stop_proj")
        self._stop_head = source.linear("stop_head", bias=False)

    def embed_text(self, token_ids: Tensor) -> Tensor:
        """int64 [...] -> [..., hidden]."""
        embedded = F.embedding(token_ids, self._embed_tokens)
        return embedded if self._embed_scale == 1.0 else embedded * self._embed_scale

    def __call__(
        self, text: Text | None, audio: Tensor, cache: KvCache, context: PagedContext
    ) -> LmOutput:
        """Run new rows through both models.

        audio: [B, T, hidden], acoustic embeddings, zero in text rows. Without text T is 1 and the row audio, as in
        decoding.
        """
        if text is None:
            hidden = self.quantize(self.base(audio, cache.base(context)))
        else:
            mask = text.is_audio.unsqueeze(-1)
            hidden = self.base(torch.where(mask, audio, text.embedded), cache.base(context), writes_over=True)
            hidden = torch.where(mask, self.quantize(hidden), hidden)  # text rows bypass the bottleneck
        fused = hidden + audio if self._fusion is None else self._fusion(torch.cat((hidden, audio), dim=-1))
        residual = self.residual(fused, cache.residual(context), writes_over=True)
        lm_hidden, res_hidden = (_last(rows, text) for rows in (hidden, residual))
        return LmOutput(lm_hidden, res_hidden, self.stop_logits(lm_hidden).argmax(dim=-1) == 1)

    def quantize(self, hidden: Tensor) -> Tensor:
        """Finite scalar quantisation, half to even: [..., hidden] -> [..., hidden]."""
        bounded = torch.tanh(self._fsq_in(hidden))
        return self._fsq_out(torch.round(bounded * self._fsq_scale) / self._fsq_scale)

    def stop_logits(self, lm_hidden: Tensor) -> Tensor:
        """[B, hidden] -> [B, 2]; argmax 1 means that the patch conditioned by `lm_hidden` is the last."""
        return self._stop_head(F.silu(self._stop_proj(lm_hidden)))


def _last(rows: Tensor, text: Text | None) -> Tensor:
    """[B, T, hidden] -> [B, hidden]."""
    if text is None:
        return rows[:, -1]
    at = text.last.view(-1, 1, 1).expand(-1, 1, rows.shape[-1])
    return rows.gather(1, at).squeeze(1)
