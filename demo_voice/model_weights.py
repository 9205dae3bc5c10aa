"""The main weights as trainable leaves: merged as the forward pass wants them, named as a checkpoint has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.checkpoint.shapes import Shape, main_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.model.weights import LayerWeights, Linear, WeightSource


class _Place(NamedTuple):
    """Where a checkpoint tensor lies: rows of a leaf."""

    leaf: int
    first_row: int
    num_rows: int


class TrainableWeights(WeightSource):
    """Gives every weight out as a float32 leaf that takes gradients, and keeps the list of them.

    Build one model from it; q, k, v and gate, up are one leaf each, since merging them anew in every step would cost
    more than their products.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        super().__init__(tensors, device, torch.float32)
        self.leaves: list[Tensor] = []
        self._places: dict[str, _Place] = {}

    def tensor(self, name: str) -> Tensor:
        return self._leaf((name,))

    def layer(self, prefix: str) -> LayerWeights:
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        return LayerWeights(
            input_norm=self.tensor(f"{prefix}.input_layernorm.weight"),
            qkv=Linear(self._leaf(tuple(f"{attention}.{part}_proj.weight" for part in "qkv"))),
            o=self.linear(f"{attention}.o_proj", bias=False),
            post_norm=self.tensor(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=Linear(self._leaf((f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight"))),
            down=self.linear(f"{mlp}.down_proj", bias=False),
        )

    def _leaf(self, names: tuple[str, ...]) -> Tensor:
        parts = [super(TrainableWeights, self).tensor(name).detach() for name in names]
        first_row = 0
        for name, part in zip(names, parts, strict=True):
            self._places[name] = _Place(len(self.leaves), first_row, part.shape[0])
            first_row += part.shape[0]
        self.leaves.append(torch.cat(parts).clone().requires_grad_())
        return self.leaves[-1]

    def checkpoint_tensors(self, values: list[Tensor]) -> dict[str, Tensor]:
        """`values`, shaped as the leaves (they themselves, or their averages), under the checkpoint's names."""
        return {
            name: values[place.leaf][place.first_row : place.first_row + place.num_rows].detach()
            for name, place in self._places.items()
        }


def initial_tensors(config: ModelConfig, generator: torch.Generator) -> dict[str, Tensor]:
    """Random weights to start from: small normals, residual branches smaller, norms one, biases zero."""
    num_layers = config.base_lm.num_layers + config.residual_lm.num_layers
    return {name: _initial(name, shape, num_layers, generator) for name, shape in main_shapes(config).items()}


def _initial(name: str, shape: Shape, num_layers: int, generator: torch.Generator) -> Tensor:
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(".bias"):
        return torch.zeros(shape)
    normal = torch.randn(shape, generator=generator)
    if name.endswith(("embed_tokens.weight", "special_token")):
        return 0.1 * normal
    scale = float(shape[-1]) ** -0.5
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        scale *= float(2 * num_layers) ** -0.5
    return scale * normal
