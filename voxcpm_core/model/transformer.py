"""The MiniCPM-4 block stack that base LM, residual LM, local encoder and DiT share."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.layer_ops import ALL_TOKENS, LayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.model.rope import RopeTable
from voxcpm_core.model.weights import LayerWeights, WeightSource


class Attention(Protocol):
    """How a stack attends: over the tokens at hand, or over a paged cache that it also writes."""

    positions: Tensor  # int64 [..., T] of the tokens at hand

    def attend(
        self, ops: LayerOps, layer: int, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig,
        rotation: Rotation | None, kept: slice,
    ) -> tuple[Tensor, Tensor]:
        """x: [B, T, hidden], before the norm -> [B, T', q] of the tokens `kept`, and x [B, T', hidden] of these.

        What attends over a cache keeps all.
        """


class LocalAttention:
    """Bidirectional attention inside one short sequence (a patch, or the DiT's tokens)."""

    def __init__(self, num_tokens: int, device: torch.device) -> None:
        self.positions = torch.arange(num_tokens, device=device)

    def attend(
        self, ops: LayerOps, layer: int, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig,
        rotation: Rotation | None, kept: slice,
    ) -> tuple[Tensor, Tensor]:
        return ops.local_attention(x, norm, qkv, config, rotation, kept)


class Transformer:
    """A stack of pre-norm GQA + SwiGLU blocks with a final norm."""

    def __init__(
        self, config: TransformerConfig, layers: list[LayerWeights], norm: Tensor, rope: RopeTable | None, ops: LayerOps
    ) -> None:
        self.config = config
        self.layers = layers
        self.norm = norm
        self.rope = rope
        self._ops = ops

    @classmethod
    def load(
        cls, config: TransformerConfig, source: WeightSource, prefix: str, num_positions: int
    ) -> Transformer:
        """`num_positions`: how many positions the rope table must cover."""
        rope = config.rope and RopeTable(config.rope, num_positions, source.device, source.dtype)
        layers = [source.layer(f"{prefix}.layers.{i}") for i in range(config.num_layers)]
        return cls(config, layers, source.tensor(f"{prefix}.norm.weight"), rope, source.ops)

    def __call__(
        self, x: Tensor, attention: Attention, kept: slice = ALL_TOKENS, writes_over: bool = False
    ) -> Tensor:
        """x: [B, T, hidden] -> the tokens `kept` [B, T', hidden], after the final norm. `writes_over`: x may change."""
        return self._ops.norm(self.blocks(x, attention, kept, writes_over), self.norm, self.config.norm_eps)

    def blocks(
        self, x: Tensor, attention: Attention, kept: slice = ALL_TOKENS, writes_over: bool = False
    ) -> Tensor:
        """x: [B, T, hidden] -> the tokens `kept` [B, T', hidden], to which the final norm has yet to be applied."""
        ops, config, eps, scale = self._ops, self.config, self.config.norm_eps, self.config.residual_scale
        rotation = self.rope.at(attention.positions) if self.rope else None
        for index, layer in enumerate(self.layers):
            is_last = layer is self.layers[-1]  # from its attention on a token is on its own
            kept_here = kept if is_last else ALL_TOKENS
            attended, x = attention.attend(
                ops, index, x, Norm(layer.input_norm, eps), layer.qkv, config, rotation, kept_here
            )
            x = ops.linear_add(attended, layer.o, x, scale, in_place=writes_over or index > 0)
            gated = ops.norm_swiglu(x, Norm(layer.post_norm, eps), layer.gate_up)
            x = ops.linear_add(gated, layer.down, x, scale, in_place=True)
        return x
