"""Conversion to safetensors."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from voxcpm_core.checkpoint.convert import convert
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.checkpoint.write import atomic_path
from voxcpm_core.errors import CheckpointError

WEIGHTS = ["audiovae.safetensors", "model.safetensors"]


@pytest.fixture
def folder(tmp_path):
    make_checkpoint(tmp_path / "old", "tiny", "0.5", dtype="bfloat16")
    return tmp_path / "old"


def _expected(folder):
    main = torch.load(folder / "pytorch_model.bin", weights_only=True)["state_dict"]
    vae = torch.load(folder / "audiovae.pth", weights_only=True)["state_dict"]
    return main, vae


@pytest.mark.parametrize("into_another", [True, False])
def test_conversion_keeps_every_bit(folder, tmp_path, into_another):
    out = tmp_path / "new" / "model" if into_another else None
    written = convert(folder, out)
    target = out or folder
    assert sorted(path.name for path in written) == WEIGHTS
    assert all(path.parent == target for path in written)
    for expected, name in zip(_expected(folder), ["model.safetensors", "audiovae.safetensors"], strict=True):
        found = load_file(target / name)
        assert set(found) == set(expected)
        assert all(torch.equal(found[key], expected[key]) and found[key].dtype == expected[key].dtype for key in found)
    assert len(read_tensors(target)) == 116
    assert len(read_vae_tensors(target)) == 131
    assert (target / "tokenizer.json").is_file()
    assert not list(target.glob("*.partial"))


def test_the_second_time_nothing_is_left_to_do(folder):
    convert(folder)
    assert convert(folder) == []


def test_a_checkpoint_that_does_not_fit_is_refused_and_nothing_is_written(folder, tmp_path):
    vae = torch.load(folder / "audiovae.pth", weights_only=True)
    del vae["state_dict"]["encoder.fc_mu.bias"]
    torch.save(vae, folder / "audiovae.pth")
    with pytest.raises(CheckpointError, match=r"encoder\.fc_mu\.bias"):
        convert(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted():
        with atomic_path(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
