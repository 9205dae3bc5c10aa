"""Reading checkpoint folders: every layout, lazily and strictly."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.checkpoint.shapes import main_shapes, vae_shapes
from voxcpm_core.errors import CheckpointError, ConfigError

SOME = "base_lm.layers.1.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made")
    make_checkpoint(path, "tiny", "2")
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


def _edit(folder: Path, edit) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def _shard(folder: Path) -> dict[str, str]:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(tensors)}
    for shard in set(weight_map.values()):
        save_file({name: t for name, t in tensors.items() if weight_map[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return weight_map


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_released_layouts(tmp_path, generation):
    make_checkpoint(tmp_path, "tiny", generation)
    config = load_config(tmp_path)
    main, vae = read_tensors(tmp_path), read_vae_tensors(tmp_path)
    assert {name: tuple(tensor.shape) for name, tensor in main.items()} == main_shapes(config)
    assert {name: tuple(tensor.shape) for name, tensor in vae.items()} == vae_shapes(config.vae)


@pytest.mark.parametrize("layout", ["sharded", "bin", "plain bin", "legacy bin"])
def test_other_layouts_hold_the_same(folder, layout):
    expected = load_file(folder / "model.safetensors")
    if layout == "sharded":
        _shard(folder)
    else:
        (folder / "model.safetensors").unlink()
        values = {"state_dict": expected} if layout == "bin" else expected
        torch.save(values, folder / "pytorch_model.bin", _use_new_zipfile_serialization=layout != "legacy bin")
    tensors = read_tensors(folder)
    assert set(tensors) == set(expected)
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)


def test_safetensors_come_before_pickles(folder):
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    (folder / "audiovae.pth").rename(folder / "other.pth")
    save_file(torch.load(folder / "other.pth", weights_only=True)["state_dict"], folder / "audiovae.safetensors")
    (folder / "audiovae.pth").write_bytes(b"not read")
    assert len(read_tensors(folder)) + len(read_vae_tensors(folder)) == 118 + 166


def test_missing_extra_and_misshapen_tensors_are_named(folder):
    _edit(folder, lambda tensors: tensors.pop(SOME))
    with pytest.raises(CheckpointError, match=rf"model\.safetensors: tensor {SOME} of shape \(96, 48\) is missing"):
        read_tensors(folder)
    _edit(folder, lambda tensors: tensors.update({SOME: torch.zeros(48, 96)}))
    with pytest.raises(CheckpointError, match=rf"{SOME} has shape \(48, 96\), expected \(96, 48\)"):
        read_tensors(folder)
    _edit(folder, lambda tensors: tensors.update({SOME: torch.zeros(96, 48), "lm_head.weight": torch.zeros(3, 4)}))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight of shape \(3, 4\) does not belong"):
        read_tensors(folder)


def test_a_misspelt_tensor_is_both_and_the_missing_one_is_named(folder):
    _edit(folder, lambda tensors: tensors.update({"misspelt": tensors.pop(SOME)}))
    with pytest.raises(CheckpointError, match=f"{SOME} .* is missing"):
        read_tensors(folder)


def test_a_quantised_tensor_is_named(folder):
    _edit(folder, lambda tensors: tensors.update({SOME: torch.zeros(96, 48, dtype=torch.int8)}))
    with pytest.raises(CheckpointError, match=f"{SOME} has the unsupported type I8"):
        read_tensors(folder)


@pytest.mark.parametrize("num_kept", [0, 4, 100, 20_000, -1])
def test_truncated_safetensors_name_the_file(folder, num_kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:num_kept])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        read_tensors(folder)


@pytest.mark.parametrize("num_kept", [0, 4, 100, 20_000, -1])
def test_truncated_pickles_name_the_file(folder, num_kept):
    path = folder / "audiovae.pth"
    path.write_bytes(path.read_bytes()[:num_kept])
    with pytest.raises(CheckpointError, match=r"audiovae\.pth"):
        read_vae_tensors(folder)


class _Evil:
    def __reduce__(self):
        return Path.touch, (Path("evil"),)


@pytest.mark.parametrize("values", [[1, 2], {"a": 1}, {"state_dict": None}, 3, _Evil()])
def test_pickles_of_something_else_are_refused_and_run_no_code(folder, values, monkeypatch):
    monkeypatch.chdir(folder)
    torch.save(values, folder / "audiovae.pth")
    with pytest.raises(CheckpointError, match=r"audiovae\.pth"):
        read_vae_tensors(folder)
    assert not (folder / "evil").exists()


def test_missing_files_are_named(folder):
    (folder / "model.safetensors").unlink()
    (folder / "audiovae.pth").unlink()
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        read_tensors(folder)
    with pytest.raises(CheckpointError, match=r"audiovae\.safetensors"):
        read_vae_tensors(folder)


def test_faults_of_shards_are_named(folder):
    weight_map = _shard(folder)
    index = folder / "model.safetensors.index.json"
    for faulty, message in [
        (weight_map | {SOME: "../model-0.safetensors"}, "not the name of a file"),
        (weight_map | {SOME: "model-9.safetensors"}, r"model-9\.safetensors"),
        (weight_map | {"more.weight": "model-0.safetensors"}, r"model-0\.safetensors: tensor more\.weight"),
        ({name: shard for name, shard in weight_map.items() if name != SOME}, f"{SOME} is not listed"),
    ]:
        index.write_text(json.dumps({"weight_map": faulty}))
        with pytest.raises(CheckpointError, match=message):
            read_tensors(folder)
    for text in ("{", "[]", "{}", '{"weight_map": 3}'):
        index.write_text(text)
        with pytest.raises(CheckpointError, match=r"index\.json"):
            read_tensors(folder)


def test_vae_boundaries_must_be_those_of_the_config(folder):
    values = torch.load(folder / "audiovae.pth", weights_only=True)
    values["state_dict"]["decoder.sr_bin_boundaries"][0] = 1
    torch.save(values, folder / "audiovae.pth")
    with pytest.raises(CheckpointError, match="sr_bin_boundaries is"):
        read_vae_tensors(folder)


def test_config_errors_name_the_file(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read"):
        load_config(tmp_path)
    for data in (b"{", b"", b"[]", b"{}", b"\xed\xa0\x80"):
        (tmp_path / "config.json").write_bytes(data)
        with pytest.raises(ConfigError, match=r"config\.json"):
            load_config(tmp_path)
