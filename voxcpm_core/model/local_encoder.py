"""The local encoder: a patch of latents becomes one embedding of the language model."""

from __future__ import annotations

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.model.transformer import LocalAttention, Transformer
from voxcpm_core.model.weights import Linear, WeightSource

CLASS_TOKEN = slice(0, 1)


class LocalEncoder:
    """Bidirectional stack over a class token and the patch's latents; the class token is the answer."""

    def __init__(self, in_proj: Linear, special_token: Tensor, stack: Transformer, out_proj: Linear) -> None:
        self._in_proj = in_proj
        self._special_token = special_token  # [1, 1, 1, hidden]
        self.stack = stack
        self._out_proj = out_proj

    @classmethod
    def load(cls, config: ModelConfig, source: WeightSource) -> LocalEncoder:
        return cls(
            source.linear("feat_encoder.in_proj"),
            source.tensor("feat_encoder.special_token"),
            Transformer.load(config.local_encoder, source, "feat_encoder.encoder", config.patch_size + 1),
            source.linear("enc_to_lm_proj"),
        )

    def __call__(self, patches: Tensor) -> Tensor:
        """patches: [N, P, C] -> [N, lm_hidden]."""
        tokens = self._in_proj(patches)
        class_token = self._special_token.flatten(0, 1).expand(tokens.shape[0], -1, -1)
        tokens = torch.cat((class_token, tokens), dim=1)  # [N, P+1, hidden]
        encoded = self.stack(tokens, LocalAttention(tokens.shape[1], tokens.device), kept=CLASS_TOKEN, writes_over=True)
        return self._out_proj(encoded[:, 0])
