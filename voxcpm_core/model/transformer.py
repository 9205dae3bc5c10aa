"""The MiniCPM-4 block stack that base LM, residual LM, local encoder and DiT share."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.config import TransformerConfig
from voxcpm_core.model.rope import RopeTable, rotate
from voxcpm_core.model.weights import LayerWeights, WeightSource


class Attention(Protocol):
    """How a stack attends: over the tokens at hand, or over a paged cache that it also writes."""

    positions: Tensor  # int64 [..., T] of the tokens at hand

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q: [B, T, heads, head_dim]; k, v: [B, T, kv_heads, head_dim]; returns q's shape."""


class LocalAttention:
    """Bidirectional attention inside one short sequence (a patch, or the DiT's tokens)."""

    def __init__(self, num_tokens: int, device: torch.device) -> None:
        self.positions = torch.arange(num_tokens, device=device)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Variance and scaling in fp32, rounded to the model dtype, then the weight. x: [..., hidden]."""
    variance = x.float().pow(2).mean(dim=-1, keepdim=True)
    return (x * torch.rsqrt(variance + eps)).to(x.dtype) * weight


class Transformer:
    """A stack of pre-norm GQA + SwiGLU blocks with a final norm."""

    def __init__(
        self, config: TransformerConfig, layers: list[LayerWeights], norm: Tensor, rope: RopeTable | None
    ) -> None:
        self.config = config
        self.layers = layers
        self.norm = norm
        self.rope = rope

    @classmethod
    def load(
        cls, config: TransformerConfig, source: WeightSource, prefix: str, num_positions: int
    ) -> Transformer:
        """`num_positions`: how many positions the rope table must cover."""
        rope = config.rope and RopeTable(config.rope, num_positions, source.device, source.dtype)
        layers = [source.layer(f"{prefix}.layers.{i}") for i in range(config.num_layers)]
        return cls(config, layers, source.tensor(f"{prefix}.norm.weight"), rope)

    def __call__(self, x: Tensor, attention: Attention) -> Tensor:
        """x: [B, T, hidden] -> [B, T, hidden], after the final norm."""
        table = self.rope.at(attention.positions) if self.rope else None
        for index, layer in enumerate(self.layers):
            x = self._residual(x, self._attention(index, layer, x, attention, table))
            x = self._residual(x, self._mlp(layer, x))
        return rms_norm(x, self.norm, self.config.norm_eps)

    def _residual(self, x: Tensor, branch: Tensor) -> Tensor:
        scale = self.config.residual_scale
        return x + branch if scale == 1.0 else x + branch * scale

    def _attention(
        self, index: int, layer: LayerWeights, x: Tensor, attention: Attention, table: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        config = self.config
        qkv = layer.qkv(rms_norm(x, layer.input_norm, config.norm_eps))
        q, k, v = qkv.split((config.q_size, config.kv_size, config.kv_size), dim=-1)
        q = q.unflatten(-1, (config.num_heads, config.head_dim))
        k = k.unflatten(-1, (config.num_kv_heads, config.head_dim))
        v = v.unflatten(-1, (config.num_kv_heads, config.head_dim))
        if table is not None:
            q, k = rotate(q, *table), rotate(k, *table)
        return layer.o(attention.attend(index, q, k, v).flatten(-2))

    def _mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        gate, up = layer.gate_up(rms_norm(x, layer.post_norm, self.config.norm_eps)).chunk(2, dim=-1)
        return layer.down(F.silu(gate) * up)
