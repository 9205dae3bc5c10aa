"""Adapters in their slots, as the kernels want them."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.lora import torch_lora
from voxcpm_core.lora.layout import LoraLayout
from voxcpm_core.lora.slots import LoadedLora, LoraSlots

CPU = torch.device("cpu")


@pytest.mark.parametrize("folds", [True, False])
def test_an_a_behind_a_norm_is_multiplied_by_its_factors(folds):
    model = ModelConfig.from_json(tiny_config("2"))
    layout = LoraLayout.of(model, max_rank=16, with_mlp=True)
    slots = LoraSlots(layout, 3, CPU, torch.float32, torch_lora)
    behind_norm, other = "base_lm.layers.0.self_attn.q_proj", "base_lm.layers.0.self_attn.o_proj"
    factors = torch.randn(layout.targets[behind_norm].num_in) if folds else None
    normed, plain = slots.stack(behind_norm, factors), slots.stack(other)
    loaded = [LoadedLora(str(seed), torch.randn(layout.num_values)) for seed in range(2)]
    for slot, lora in ((0, loaded[0]), (2, loaded[1]), (2, loaded[0]), (2, loaded[0])):
        slots.put(slot, lora)
        for stack, layer, factor in ((normed, behind_norm, 1.0 if factors is None else factors), (plain, other, 1.0)):
            a, b = layout.views(lora.values, layout.targets[layer])
            assert torch.equal(stack.a[slot], a * factor)
            assert torch.equal(stack.b[slot], b)
