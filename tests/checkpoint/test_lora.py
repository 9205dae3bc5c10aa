"""Adapters: reading, merging, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoint.lora_folder import make_lora
from voxcpm_core.checkpoint.lora import LoraAdapter, LoraPair, merge_lora, read_lora
from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import CheckpointError, ConfigError

V1, V2 = (ModelConfig.from_json(tiny_config(generation)) for generation in ("0.5", "2"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_lora(tmp_path, V2, r=4, alpha=6)
    return tmp_path


def _edit_weights(folder: Path, edit) -> None:
    path = folder / "lora_weights.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize("format", ["safetensors", "ckpt"])
@pytest.mark.parametrize(("config", "num_layers"), [(V1, 4 * 7 + 3), (V2, 4 * 7 + 4)])
def test_read(tmp_path, config, num_layers, format):
    make_lora(tmp_path, config, r=4, alpha=6, format=format)
    adapter = read_lora(tmp_path, config)
    assert (adapter.rank, adapter.alpha, adapter.scale) == (4, 6, 1.5)
    assert len(adapter.pairs) == num_layers
    assert adapter.pairs["base_lm.layers.0.self_attn.k_proj"].b.shape == (32, 4)


def test_merging_equals_the_adapted_layer(folder):
    adapter = read_lora(folder, V2)
    generator = torch.Generator().manual_seed(1)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in main_shapes(V2).items()}
    merged = merge_lora(tensors, adapter)
    assert list(merged) == list(tensors)
    x = torch.randn(5, 48, generator=generator)
    pair = adapter.pairs["lm_to_dit_proj"]
    expected = x @ tensors["lm_to_dit_proj.weight"].T + 6 / 4 * (x @ pair.a.T) @ pair.b.T
    torch.testing.assert_close(x @ merged["lm_to_dit_proj.weight"].T, expected, atol=1e-4, rtol=1e-4)
    untouched = [name for name in tensors if name.removesuffix(".weight") not in adapter.pairs]
    assert all(merged[name] is tensors[name] for name in untouched)
    assert "stop_proj.weight" in untouched
    assert "lm_to_dit_proj.bias" in untouched


def test_merging_keeps_the_dtype():
    pair = LoraPair(torch.ones(1, 2), torch.ones(3, 1))
    weight = torch.zeros(3, 2, dtype=torch.bfloat16)
    merged = merge_lora({"stack.weight": weight}, LoraAdapter(1, 0.5, {"stack": pair}))["stack.weight"]
    assert merged.dtype == torch.bfloat16
    assert merged.float().tolist() == [[0.5, 0.5]] * 3
    assert not weight.any()


def test_merging_into_other_weights_is_refused(folder):
    with pytest.raises(CheckpointError, match="lacks"):
        merge_lora({}, read_lora(folder, V2))


def test_an_adapter_of_another_model_is_refused(folder):
    with pytest.raises(CheckpointError, match=r"lora_weights\.safetensors: tensor .*(shape|adapts nothing)"):
        read_lora(folder, V1)


def test_a_missing_half_is_named(folder):
    _edit_weights(folder, lambda tensors: tensors.pop("enc_to_lm_proj.lora_B"))
    with pytest.raises(CheckpointError, match=r"enc_to_lm_proj\.lora_B of shape \(48, 4\) is missing"):
        read_lora(folder, V2)


@pytest.mark.parametrize(
    "name",
    ["stop_proj.lora_A", "feat_encoder.in_proj.lora_A", "foo.lora_A", "enc_to_lm_proj.weight", "base_lm.norm.lora_A",
     "base_lm.layers.9.self_attn.q_proj.lora_A"],
)
def test_what_adapts_nothing_is_named(folder, name):
    _edit_weights(folder, lambda tensors: tensors.update({name: torch.zeros(4, 48)}))
    with pytest.raises(CheckpointError, match=f"tensor {name} adapts nothing"):
        read_lora(folder, V2)


def test_a_rank_other_than_the_configured_is_named(folder):
    settings = json.loads((folder / "lora_config.json").read_text())
    settings["lora_config"]["r"] = 8
    (folder / "lora_config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=r"has shape \(4, \d+\), expected \(8, \d+\)"):
        read_lora(folder, V2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        *((text, "does not say the adapter's rank r and its alpha; the official layout is ")
          for text in ("[]", "{}", "1", '{"lora_config": null}', '{"r": 8, "lora_alpha": 16}')),
        ('{"lora_config": {}}', "lora_config.r: expected an integer >= 1, got None"),
        ('{"lora_config": {"r": 0, "alpha": 1}}', "lora_config.r: expected an integer >= 1, got 0"),
        ('{"lora_config": {"r": 4, "alpha": "x"}}', "lora_config.alpha: expected a number, got 'x'"),
    ],
)
def test_a_bad_config_is_named(folder, text, message):
    (folder / "lora_config.json").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"{folder / 'lora_config.json'}: {message}")):
        read_lora(folder, V2)


def test_missing_files_are_named(folder, tmp_path):
    (folder / "lora_weights.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lora_weights\.ckpt"):
        read_lora(folder, V2)
    (folder / "lora_config.json").unlink()
    with pytest.raises(ConfigError, match=r"lora_config\.json"):
        read_lora(folder, V2)
