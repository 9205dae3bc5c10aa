"""Starting an engine: it is warm, or it says what to change."""

import dataclasses
import hashlib
import json
import shutil

import pytest
import torch

from tests.engine.harness import SMALL
from voxcpm_core.config import EngineConfig
from voxcpm_core.engine import host_memory
from voxcpm_core.engine.threaded import start_engine
from voxcpm_core.errors import CheckpointError, ConfigError, StartupError
from voxcpm_core.model.voxcpm import VoxCPMModel


@pytest.mark.parametrize("generation", ["0.5", "2"])
def test_a_started_engine_has_generated_in_every_mode(generation, tiny_checkpoints):
    engine = start_engine(dataclasses.replace(SMALL, model=str(tiny_checkpoints[generation])), "cpu")
    stats = engine.stats()
    engine.close()
    assert stats.num_prefills == (4 if generation == "2" else 2)
    assert (stats.num_shared_positions > 0) == (generation == "2"), "also from what it knows"
    assert (stats.pages_kept, stats.voice_cache_bytes) == (0, 0), "but no caller's voice was among that"
    assert (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0)


@pytest.mark.parametrize(
    ("settings", "device", "message"),
    [
        ({"max_model_len": 4}, "cpu", "the settings admit no request: .*positions"),
        ({"page_size": 1_000_000}, "cpu", "page_size: expected at most 1024, the positions of .* got 1000000"),
        ({"page_size": 64, "max_model_len": 63}, "cpu", "page_size: expected at most 63"),
        ({"max_text_tokens": 1}, "cpu", "the settings admit no request: .*tokens"),
        ({}, "gpu", "device: expected 'cpu' or 'cuda:N', got 'gpu'"),
        ({}, "meta", "device: expected 'cpu' or 'cuda:N', got 'meta'"),
        ({}, "cuda:99", "device: 'cuda:99' is not there"),
        ({"model": "no/such/folder"}, "cpu", "no/such/folder"),
    ],
)
def test_settings_that_cannot_work_are_named(settings, device, message, tiny_checkpoints):
    config = dataclasses.replace(EngineConfig(model=str(tiny_checkpoints["2"])), **settings)
    with pytest.raises(ConfigError, match=message):
        start_engine(config, device)


def test_weights_that_are_not_those_of_the_list_do_not_start(tiny_checkpoints, tmp_path):
    listing, folder = tmp_path / "SHA256SUMS", tiny_checkpoints["2"]
    config = dataclasses.replace(SMALL, model=str(folder), checksums=str(listing))
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    listing.write_text("".join(f"{digest}  {name}\n" for name, digest in files.items()))
    start_engine(config, "cpu").close()
    listing.write_text(listing.read_text().replace(files["model.safetensors"], "0" * 64))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: its SHA-256 is"):
        start_engine(config, "cpu")


def test_slots_of_adapters_that_do_not_fit_are_named(tiny_checkpoints, tmp_path, monkeypatch):
    monkeypatch.setattr(host_memory, "host_memory_bytes", lambda: 2**20)
    config = EngineConfig(model=str(tiny_checkpoints["2"]), lora_root=str(tmp_path), max_loras=32, max_lora_rank=64)
    with pytest.raises(ConfigError, match="max_loras, max_lora_rank and lora_mlp: there are 1 MiB of memory"):
        start_engine(config, "cpu")


def test_a_gpu_without_the_kernels_is_told_what_to_set(tiny_checkpoints, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(ConfigError, match=r"cuda_graphs: .*capability 8.0 or more.* has 7.5; set it to off"):
        start_engine(EngineConfig(model=str(tiny_checkpoints["2"])), "cuda:0")


def test_a_model_that_does_not_generate_does_not_start(tiny_checkpoints, monkeypatch):
    monkeypatch.setattr(VoxCPMModel, "advance", lambda *_: 1 / 0)
    with pytest.raises(StartupError, match="the model does not generate"):
        start_engine(dataclasses.replace(SMALL, model=str(tiny_checkpoints["2"])), "cpu")


def test_a_tokenizer_of_another_model_is_refused(tiny_checkpoints, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_checkpoints["2"], folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"]["extra"] = 70000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(CheckpointError, match="tokenizer.json: has ids up to 70000"):
        start_engine(dataclasses.replace(SMALL, model=str(folder)), "cpu")
