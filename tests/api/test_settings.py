"""Arguments of from_pretrained: what they become, and which are refused."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from voxcpm_core import VoxCPM
from voxcpm_core.api.settings import PoolSettings, pool_settings
from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import ConfigError

DEFAULTS = dict(
    inference_timesteps=10, max_num_batched_tokens=2048, max_num_seqs=64, max_model_len=4096,
    gpu_memory_utilization=0.9, enforce_eager=False, devices=[0], lora_config=None, dtype=None, settings={},
)


def settings(**changes) -> PoolSettings:
    return pool_settings("demo", **(DEFAULTS | changes))


def test_arguments_become_settings_of_the_engine():
    assert settings() == PoolSettings(EngineConfig(model="demo"), ("cuda:0",), 10)
    chosen = settings(
        inference_timesteps=50, max_num_batched_tokens=512, max_num_seqs=7, max_model_len=1024,
        gpu_memory_utilization=0.5, devices=(1, "cuda:2", "cpu"), dtype="bfloat16", settings={"kv_cache_mib": 64},
    )
    engine = EngineConfig(
        model="demo", dtype="bfloat16", max_prefill_tokens=512, max_running=7, max_model_len=1024,
        max_timesteps=50, gpu_memory_utilization=0.5, kv_cache_mib=64,
    )
    assert chosen == PoolSettings(engine, ("cuda:1", "cuda:2", "cpu"), 50)


def test_what_other_libraries_would_pass():
    assert settings(devices=[]).devices == ("cuda:0",)
    assert settings(dtype=torch.bfloat16).engine.dtype == "bfloat16"
    assert settings(enforce_eager=True).engine.cuda_graphs == "off"
    assert pool_settings(Path("some/folder"), **DEFAULTS).engine.model == "some/folder"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_config": object()}, "lora_config: give the settings lora_root"),
        ({"enforce_eager": 1}, "enforce_eager: expected True or False, got 1"),
        ({"enforce_eager": True, "settings": {"cuda_graphs": "on"}}, "enforce_eager: True contradicts"),
        ({"inference_timesteps": 1}, "inference_timesteps: expected an integer >= 2, got 1"),
        ({"inference_timesteps": 20, "settings": {"max_timesteps": 12}}, "at most max_timesteps, 12, got 20"),
        ({"max_num_seqs": 0}, "max_num_seqs: expected an integer >= 1, got 0"),
        ({"max_num_batched_tokens": 1e4}, "max_num_batched_tokens: expected an integer >= 1, got 10000.0"),
        ({"max_model_len": True}, "max_model_len: expected an integer >= 1, got True"),
        ({"gpu_memory_utilization": 90}, "gpu_memory_utilization: expected a number above 0, at most 1, got 90"),
        ({"dtype": "float16"}, "dtype: expected 'float32' or 'bfloat16', got 'float16'"),
        ({"devices": "cpu"}, r"devices: expected a list such as \[0, 1\] or \['cpu'\], got 'cpu'"),
        ({"devices": [-1]}, "devices: expected numbers of CUDA devices, or 'cuda:N' and 'cpu', got -1"),
        ({"devices": [None]}, "devices: expected numbers"),
        ({"settings": {"max_runing": 4}}, "unknown argument 'max_runing'; further settings are attention, checksums, "),
        ({"settings": {"max_running": 4}}, "unknown argument 'max_running'"),
        ({"settings": {"kv_cache_mib": "64"}}, "kv_cache_mib: expected int, got '64'"),
        ({"settings": {"page_size": -1}}, "page_size: expected an integer >= 0, got -1"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


def test_bad_arguments_start_no_worker():
    with pytest.raises(ConfigError, match="unknown argument 'voice'"):
        VoxCPM.from_pretrained("demo", voice="alice")
    with pytest.raises(ConfigError, match="model: expected a folder, a Hugging Face id or 'demo', got None"):
        VoxCPM.from_pretrained(None)


def test_the_package_is_light_and_the_pools_need_no_torch():
    program = """
import sys, voxcpm_core
assert "numpy" not in sys.modules
from voxcpm_core import VoxCPM
assert "torch" not in sys.modules
assert voxcpm_core.__all__ == ["RequestError", "StartupError", "VoxCPM"]
try:
    voxcpm_core.Voxcpm
except AttributeError as error:
    assert "Voxcpm" in str(error)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
