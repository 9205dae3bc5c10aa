"""From checkpoint names to the model's parts: renames and merges, in this file alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from voxcpm_core.kernels.fp8 import quantised
from voxcpm_core.kernels.layer_ops import LayerOps, TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import LoraStack
from voxcpm_core.lora.slots import LoraSlots


@dataclass(frozen=True)
class LayerWeights:
    """One transformer block, with q, k, v and gate, up merged so that each is one product.

    What stands behind a norm is as `LayerOps.folded` has it.
    """

    input_norm: Tensor  # [hidden]
    qkv: Linear  # [q + 2 kv, hidden]
    o: Linear  # [hidden, q]
    post_norm: Tensor  # [hidden]
    gate_up: Linear  # [2 ffn, hidden]
    down: Linear  # [hidden, ffn]


class WeightSource:
    """Checkpoint tensors, moved to the model's device and dtype one at a time."""

    def __init__(
        self, tensors: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype, ops: LayerOps | None = None,
        lora: LoraSlots | None = None, fp8: bool = False,
    ) -> None:
        """`ops`: how the stacks built from it compute; None: in torch. `lora`: adapters that requests may have.

        `fp8`: the products of blocks keep their weights in float8; no two of them are there as a whole besides.
        """
        self._tensors = tensors
        self.device = device
        self.dtype = dtype
        self.ops: LayerOps = ops or TorchLayerOps()
        self._lora = lora
        self._fp8 = fp8

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name].to(device=self.device, dtype=self.dtype)

    def linear(self, name: str, bias: bool = True, norm_weight: Tensor | None = None) -> Linear:
        """`norm_weight`: of the RMS norm before it, which is folded into W (`LayerOps.folded`)."""
        weight = self.tensor(f"{name}.weight")
        if norm_weight is not None:
            weight = self.ops.folded(weight, norm_weight)
        return Linear(weight, self.tensor(f"{name}.bias") if bias else None, self._stack(name, norm_weight))

    def _product(self, prefix: str, names: tuple[str, ...], norm_weight: Tensor | None = None) -> Linear:
        parts = [self.tensor(f"{prefix}.{name}.weight") for name in names]
        weight, scales = torch.cat(parts) if len(parts) > 1 else parts[0], None
        if norm_weight is not None:
            weight = self.ops.folded(weight, norm_weight)
        if self._fp8:
            weight, scales = quantised(weight)
        return Linear(weight, lora=self._stack(f"{prefix}.{names[0]}", norm_weight), scales=scales)

    def _stack(self, layer: str, norm_weight: Tensor | None) -> LoraStack | None:
        if self._lora is None:
            return None
        if norm_weight is None:
            return self._lora.stack(layer)
        ones = torch.ones_like(norm_weight)
        factors = self.ops.folded(ones, norm_weight)
        return self._lora.stack(layer, None if factors is ones else factors)

    def layer(self, prefix: str) -> LayerWeights:
        input_norm, post_norm = (
            self.tensor(f"{prefix}.{name}_layernorm.weight") for name in ("input", "post_attention")
        )
        return LayerWeights(
            input_norm=input_norm,
            qkv=self._product(f"{prefix}.self_attn", ("q_proj", "k_proj", "v_proj"), input_norm),
            o=self._product(f"{prefix}.self_attn", ("o_proj",)),
            post_norm=post_norm,
            gate_up=self._product(f"{prefix}.mlp", ("gate_proj", "up_proj"), post_norm),
            down=self._product(f"{prefix}.mlp", ("down_proj",)),
        )
