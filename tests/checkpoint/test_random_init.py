"""Checkpoints with random weights: layout, reproducibility, and the statistics they promise."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.errors import ConfigError

TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}


@pytest.mark.parametrize(
    ("generation", "weights"), [("0.5", "pytorch_model.bin"), ("1.5", "model.safetensors"), ("2", "model.safetensors")]
)
def test_the_released_layout(tmp_path, generation, weights):
    make_checkpoint(tmp_path, "tiny", generation, dtype="bfloat16")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", weights, "audiovae.pth"} | TOKENIZER_FILES
    assert {tensor.dtype for tensor in read_tensors(tmp_path).values()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in read_vae_tensors(tmp_path).values()} - {torch.int32} == {torch.float32}
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"


def test_our_file_is_what_the_library_reads(tmp_path):
    make_checkpoint(tmp_path, "tiny")
    theirs, ours = load_file(tmp_path / "model.safetensors"), read_tensors(tmp_path)
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)
    assert theirs.keys() == ours.keys()


def test_the_seed_decides(tmp_path):
    for name, seed in [("a", 0), ("b", 0), ("c", 1)]:
        make_checkpoint(tmp_path / name, "tiny", seed=seed)
    a, b, c = (read_tensors(tmp_path / name) for name in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any(torch.equal(a[name], c[name]) for name in a)


def test_statistics(tmp_path):
    make_checkpoint(tmp_path, "tiny", "1.5")
    main, vae = read_tensors(tmp_path), read_vae_tensors(tmp_path)
    assert main["base_lm.layers.0.mlp.down_proj.weight"].std().item() == pytest.approx(96**-0.5, rel=0.05)
    assert main["base_lm.embed_tokens.weight"].std().item() == pytest.approx(1, rel=0.05)
    assert main["base_lm.norm.weight"].mean().item() == pytest.approx(1, abs=0.05)
    gains = torch.cat([tensor.flatten() for name, tensor in vae.items() if name.endswith("weight_g")])
    assert 0.6 <= gains.min() < gains.max() <= 0.9


@pytest.mark.parametrize("stop_bias", [-3.0, 0.2, 3.0])
def test_the_stop_bias_is_the_mean_lead_of_going_on(tmp_path, stop_bias):
    make_checkpoint(tmp_path, "tiny", stop_bias=stop_bias)
    tensors = read_tensors(tmp_path)
    hidden = torch.randn(2000, 48, generator=torch.Generator().manual_seed(0))
    inner = torch.nn.functional.silu(hidden @ tensors["stop_proj.weight"].T + tensors["stop_proj.bias"])
    assert torch.allclose(inner[:, 0], torch.full((2000,), 8.0), atol=0.01)
    head = tensors["stop_head.weight"].clone()
    constant = inner[:, 0] * (head[0, 0] - head[1, 0])
    assert constant.mean().item() == pytest.approx(stop_bias, abs=0.01)
    stops = (inner @ head.T).argmax(1).float().mean().item()
    if stop_bias == 0.2:
        assert 0.02 < stops < 0.98
    else:
        assert stops == pytest.approx(float(stop_bias < 0), abs=0.01)


@pytest.mark.parametrize("arguments", [{"size": "3"}, {"size": ""}, {"size": "tiny", "generation": "3"},
                                       {"size": "tiny", "dtype": "int8"}])
def test_unknown_choices_are_named(tmp_path, arguments):
    with pytest.raises(ConfigError, match="expected"):
        make_checkpoint(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()
