"""Adapters packed as slots hold them."""

from __future__ import annotations

import pytest
import torch

from tests.checkpoint.lora_folder import make_lora
from voxcpm_core.checkpoint.lora import LoraAdapter, LoraPair, read_lora
from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import CheckpointError
from voxcpm_core.lora.layout import ALIGNMENT, LoraLayout

V2 = ModelConfig.from_json(tiny_config("2"))
GATE = "base_lm.layers.0.mlp.gate_proj"


def test_products_have_memory_of_their_own_and_all_that_is_adapted_is_there(tmp_path):
    make_lora(tmp_path, V2, r=4, alpha=6)
    adapter = read_lora(tmp_path, V2)
    layout = LoraLayout.of(V2, 20, with_mlp=False)
    assert layout.rank == 32
    memory = layout.packed(adapter, torch.float32)
    assert memory.shape == (layout.num_values,)
    for target in layout.targets.values():
        assert target.a_start % ALIGNMENT == target.b_start % ALIGNMENT == 0
        a, b = layout.views(memory, target)
        for i, (layer, columns) in enumerate(zip(target.layers, b.split(target.nums_out), strict=True)):
            pair = adapter.pairs[layer]
            rows = a[i * 32 : (i + 1) * 32]
            torch.testing.assert_close(columns @ rows, 1.5 * pair.b @ pair.a, atol=1e-6, rtol=1e-5)
            assert not rows[4:].any()
            assert not columns[:, 4:].any()


def test_an_adapter_of_some_layers_leaves_the_others_alone():
    pair = LoraPair(torch.ones(2, 48), torch.ones(32, 2))
    layout = LoraLayout.of(V2, 16, with_mlp=False)
    memory = layout.packed(LoraAdapter(2, 4, {"base_lm.layers.0.self_attn.k_proj": pair}), torch.bfloat16)
    a, b = layout.views(memory, layout.targets["base_lm.layers.0.self_attn.q_proj"])
    assert int(memory.count_nonzero()) == 2 * 48 + 32 * 2
    assert a[16:18].eq(1).all()
    assert b[64:96, :2].eq(2).all(), "alpha over rank is part of B"


def test_feed_forward_layers_need_their_room():
    pair = LoraPair(torch.ones(2, 48), torch.ones(96, 2))
    adapter = LoraAdapter(2, 4, {GATE: pair})
    small, large = (LoraLayout.of(V2, 16, with_mlp) for with_mlp in (False, True))
    with pytest.raises(CheckpointError, match=f"{GATE} cannot be adapted per request; lora_mlp is off"):
        small.packed(adapter, torch.float32)
    assert int(large.packed(adapter, torch.float32).count_nonzero()) == 2 * (48 + 96)
    other = LoraAdapter(2, 4, {"feat_decoder.estimator.in_proj": pair})
    with pytest.raises(CheckpointError, match="in_proj cannot be adapted per request$"):
        large.packed(other, torch.float32)


def test_the_room_that_releases_take():
    """MiB of a slot of rank 32 in bfloat16, as docs/operating.md says."""
    found = {}
    for generation in ("0.5", "1.5", "2"):
        model = ModelConfig.from_json(release_config(generation))
        layouts = [LoraLayout.of(model, 32, with_mlp) for with_mlp in (False, True)]
        found[generation] = [round(layout.num_values * 2 / 2**20) for layout in layouts]
    assert found == {"0.5": [14, 46], "1.5": [16, 54], "2": [35, 101]}
