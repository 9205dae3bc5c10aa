"""Settings: sources, precedence, and errors that name key, value and what is allowed."""

import pytest

from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import ConfigError


def test_environment_wins_over_parameters_and_parameters_over_defaults():
    config = EngineConfig.from_settings(
        {"max_running": "8", "max_waiting": "3"}, {"VOXCPM_MAX_RUNNING": "5", "VOXCPM_MODEL": "demo", "HOME": "x"}
    )
    assert (config.max_running, config.max_waiting, config.model, config.max_text_tokens) == (5, 3, "demo", 1000)


def test_shares_are_numbers():
    assert EngineConfig.from_settings({"gpu_memory_utilization": "0.5"}, {}).gpu_memory_utilization == 0.5


def test_an_empty_value_means_the_default():
    assert EngineConfig.from_settings({"max_running": ""}, {"VOXCPM_DTYPE": ""}) == EngineConfig()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_runing": "8"}, "unknown parameter 'max_runing'.*max_running"),
        ({"max_running": "many"}, "max_running: expected an integer, got 'many'"),
        ({"max_waiting": "0"}, "max_waiting: expected an integer >= 1, got 0"),
        ({"max_running": "0"}, "max_running: expected an integer from 1 to 4096, got 0"),
        ({"max_running": "1000000"}, "max_running: expected an integer from 1 to 4096, got 1000000"),
        ({"gpu_memory_utilization": "most"}, "gpu_memory_utilization: expected a number, got 'most'"),
        ({"gpu_memory_utilization": "90"}, "gpu_memory_utilization: expected a number above 0, at most 1, got 90.0"),
        ({"gpu_memory_utilization": "nan"}, "gpu_memory_utilization: expected a number above 0, at most 1, got nan"),
        ({"kv_cache_mib": "-5"}, "kv_cache_mib: expected an integer >= 0, got -5"),
        ({"voice_cache_mib": "-1"}, "voice_cache_mib: expected an integer >= 0, got -1"),
        ({"loras": "anna"}, "loras: expected NAME=FOLDER .*; got 'anna'"),
        ({"max_timesteps": "1"}, "max_timesteps: expected an integer from 2 to 1000, got 1"),
        ({"max_timesteps": "1001"}, "max_timesteps: expected an integer from 2 to 1000, got 1001"),
        ({"dtype": "float16"}, "dtype: expected 'float32' or 'bfloat16', got 'float16'"),
        ({"cuda_graphs": "maybe"}, "cuda_graphs: expected 'on' or 'off', got 'maybe'"),
        ({"weights": "int8"}, "weights: expected 'dtype' or 'fp8', got 'int8'"),
        ({"attention": "cuda"}, "attention: expected 'triton' or 'flash', got 'cuda'"),
        ({"attention": "flash", "page_size": "16"}, "page_size: attention 'flash' takes multiples of 256, got 16"),
        ({"run_ahead": "maybe"}, "run_ahead: expected 'on', 'off' or 'auto', got 'maybe'"),
    ],
)
def test_bad_settings_are_named(parameters, message):
    with pytest.raises(ConfigError, match=message):
        EngineConfig.from_settings(parameters, {})


def test_pages_are_as_large_as_the_attention_has_them():
    sizes = [
        EngineConfig(attention=attention, page_size=page_size).kv_page_size
        for attention, page_size in (("triton", 0), ("triton", 8), ("flash", 0), ("flash", 512))
    ]
    assert sizes == [16, 8, 256, 512]
