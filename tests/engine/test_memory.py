"""Sharing out a GPU's memory: graphs are measured and counted before KV pages, or nobody asks for them."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.engine import host_memory
from voxcpm_core.engine.host_memory import host_memory_bytes, require_host_memory
from voxcpm_core.engine.memory import plan_memory
from voxcpm_core.errors import ConfigError

GIB = 2**30
MODEL = ModelConfig.from_json(release_config("2"))
CONFIG = EngineConfig(max_running=128, max_model_len=4096, gpu_memory_utilization=0.2)
WEIGHTS, STATE, POOL, DRIVER, WORKSPACE = 5 * GIB, GIB // 2, 2 * GIB, GIB, GIB
VOICES = CONFIG.voice_cache_mib * 2**20


class Gpu:
    """80 GiB, of which the weights are taken; a trial runner takes more while it is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved = WEIGHTS
        self.trials: list[int] = []
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * GIB - self.reserved, 80 * GIB))
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: WEIGHTS)
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: self.reserved)
        monkeypatch.setattr(torch.cuda, "empty_cache", self.give_back)

    def give_back(self) -> None:
        self.reserved = WEIGHTS

    def make_trial(self, num_pages: int) -> SimpleNamespace:
        self.trials.append(num_pages)
        self.reserved += STATE + POOL
        return SimpleNamespace(graphs=SimpleNamespace(driver_bytes=lambda: DRIVER))

    def plan(self, config: EngineConfig):
        return plan_memory(config, MODEL, torch.device("cuda"), torch.bfloat16, STATE, self.make_trial)


def test_graphs_come_out_of_the_share_before_pages(monkeypatch):
    gpu = Gpu(monkeypatch)
    plan = gpu.plan(CONFIG)
    assert plan.graph_bytes == POOL + DRIVER
    assert plan.voice_bytes == VOICES
    budget = int(0.2 * 80 * GIB) - WEIGHTS - STATE - POOL - DRIVER - VOICES - WORKSPACE
    assert plan.num_pages == budget // plan.page_bytes
    assert len(gpu.trials) == 1
    without = gpu.plan(dataclasses.replace(CONFIG, cuda_graphs="off"))
    assert (without.num_pages - plan.num_pages) * plan.page_bytes == pytest.approx(POOL + DRIVER, abs=plan.page_bytes)
    assert len(gpu.trials) == 1, "without graphs there is nothing to try"


def test_a_share_that_graphs_fill_is_named(monkeypatch):
    gpu = Gpu(monkeypatch)
    config = dataclasses.replace(CONFIG, gpu_memory_utilization=9.5 / 80)
    gpu.plan(dataclasses.replace(config, cuda_graphs="off"))
    with pytest.raises(ConfigError, match="gpu_memory_utilization: 0.11875 leaves 0 MiB for KV pages beside weights"):
        gpu.plan(config)


def test_graphs_that_do_not_fit_are_named(monkeypatch):
    gpu = Gpu(monkeypatch)

    def out_of_memory(num_pages: int) -> None:
        raise torch.cuda.OutOfMemoryError("too much")

    gpu.make_trial = out_of_memory
    with pytest.raises(ConfigError, match="max_running: the CUDA graphs of so many streams do not fit"):
        gpu.plan(CONFIG)


def test_pages_that_are_asked_for_need_no_trial(monkeypatch):
    gpu = Gpu(monkeypatch)
    plan = gpu.plan(dataclasses.replace(CONFIG, kv_cache_mib=1024))
    assert plan.num_pages * plan.page_bytes == pytest.approx(GIB, abs=plan.page_bytes)
    assert not gpu.trials


def test_the_log_has_what_was_counted_alone(monkeypatch):
    on_gpu = str(Gpu(monkeypatch).plan(CONFIG))
    assert on_gpu.startswith("weights 5120 MiB, slots 512 MiB, graphs 3072 MiB, voices 256 MiB, KV pages ")
    assert on_gpu.endswith("MiB, workspace 1024 MiB")
    config = dataclasses.replace(CONFIG, kv_cache_mib=1024)
    on_cpu = plan_memory(config, MODEL, torch.device("cpu"), torch.float32, STATE, lambda num_pages: None)
    assert str(on_cpu) == "slots 512 MiB, voices 256 MiB, KV pages 1024 MiB"


@pytest.mark.parametrize(
    ("settings", "state_bytes", "named"),
    [
        ({"kv_cache_mib": 10_000_000}, STATE, "kv_cache_mib, max_model_len and page_size"),
        ({}, 9 * GIB, "max_running"),
    ],
)
def test_more_than_the_machine_has_is_named(monkeypatch, settings, state_bytes, named):
    monkeypatch.setattr(host_memory, "host_memory_bytes", lambda: 8 * GIB)

    def plan(**settings):
        config = dataclasses.replace(CONFIG, **settings)
        return plan_memory(config, MODEL, torch.device("cpu"), torch.float32, state_bytes, lambda num_pages: None)

    with pytest.raises(ConfigError, match=f"{named}: there are 8192 MiB of memory, and the engine would take"):
        plan(**settings)


def test_a_container_s_limit_counts(tmp_path):
    limit, unlimited = tmp_path / "memory.max", tmp_path / "unlimited"
    limit.write_text("1048576\n")
    unlimited.write_text("max\n")
    whole = host_memory_bytes([tmp_path / "none", unlimited])
    assert whole > host_memory_bytes([unlimited, limit]) == 2**20
    with pytest.raises(ConfigError):
        require_host_memory({"max_running": whole + 1})
