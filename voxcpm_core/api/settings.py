"""Arguments of `from_pretrained` as settings of the engine and a list of devices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.errors import ConfigError, shown

# Named after vLLM's by the programs that use them.
_RENAMED = {"max_num_batched_tokens": "max_prefill_tokens", "max_num_seqs": "max_running"}
_OWN_ARGUMENTS = frozenset({"model", "device", "dtype", "max_model_len", "gpu_memory_utilization", *_RENAMED.values()})
_TRITON_ONLY = frozenset({"max_waiting", "allowed_parameters", "loras", "trace_url"})


@dataclass(frozen=True)
class PoolSettings:
    """How a pool's workers run, and where."""

    engine: EngineConfig
    devices: tuple[str, ...]  # one worker each: "cuda:0", "cpu"
    inference_timesteps: int  # of requests that name none


def pool_settings(
    model: str | os.PathLike[str],
    *,
    inference_timesteps: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
    gpu_memory_utilization: float,
    enforce_eager: bool,
    devices: Sequence[int | str],
    lora_config: object,
    dtype: object,
    settings: Mapping[str, object],
) -> PoolSettings:
    """Check and translate; raises ConfigError naming the argument as the caller knows it."""
    if lora_config is not None:
        raise ConfigError("lora_config: give the settings lora_root, max_loras and max_lora_rank instead")
    if not isinstance(enforce_eager, bool):
        raise ConfigError(f"enforce_eager: expected True or False, got {shown(enforce_eager)}")
    if not isinstance(model, (str, os.PathLike)):
        raise ConfigError(f"model: expected a folder, a Hugging Face id or 'demo', got {shown(model)}")
    num_timesteps = _integer("inference_timesteps", inference_timesteps, minimum=2)
    values: dict[str, Any] = _other_settings(settings)
    if enforce_eager:
        if values.get("cuda_graphs") == "on":
            raise ConfigError("enforce_eager: True contradicts cuda_graphs 'on'; leave one of them out")
        values["cuda_graphs"] = "off"
    values.setdefault("max_timesteps", max(EngineConfig().max_timesteps, num_timesteps))
    if num_timesteps > values["max_timesteps"]:
        limit = values["max_timesteps"]
        raise ConfigError(f"inference_timesteps: expected at most max_timesteps, {limit}, got {num_timesteps}")
    for name, value in (
        ("max_num_batched_tokens", max_num_batched_tokens),
        ("max_num_seqs", max_num_seqs),
        ("max_model_len", max_model_len),
    ):
        values[_RENAMED.get(name, name)] = _integer(name, value, minimum=1)
    engine = EngineConfig(
        model=os.fspath(model),
        dtype=_dtype(dtype),
        gpu_memory_utilization=_share("gpu_memory_utilization", gpu_memory_utilization),
        **values,
    )
    return PoolSettings(engine, _devices(devices), num_timesteps)


def _other_settings(settings: Mapping[str, object]) -> dict[str, Any]:
    defaults = {f.name: f.default for f in fields(EngineConfig)}
    known = sorted(set(defaults) - _OWN_ARGUMENTS - _TRITON_ONLY)
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(f"unknown argument {shown(name)}; further settings are {', '.join(known)}")
        if type(value) is not type(defaults[name]):
            wanted = type(defaults[name]).__name__
            raise ConfigError(f"{name}: expected {wanted}, got {shown(value)}")
    return dict(settings)


def _integer(name: str, value: object, minimum: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < minimum:
        raise ConfigError(f"{name}: expected an integer >= {minimum}, got {shown(value)}")
    return int(value)


def _share(name: str, value: object) -> float:
    if not isinstance(value, Real) or isinstance(value, bool) or not 0.0 < float(value) <= 1.0:
        raise ConfigError(f"{name}: expected a number above 0, at most 1, got {shown(value)}")
    return float(value)


def _dtype(dtype: object) -> str:
    """Also torch's own objects, whose names are what follows the dot."""
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def _devices(devices: object) -> tuple[str, ...]:
    if not isinstance(devices, Sequence) or isinstance(devices, str):
        raise ConfigError(f"devices: expected a list such as [0, 1] or ['cpu'], got {shown(devices)}")
    return tuple(_device(device) for device in devices) or ("cuda:0",)


def _device(device: object) -> str:
    if isinstance(device, Integral) and not isinstance(device, bool) and int(device) >= 0:
        return f"cuda:{int(device)}"
    if isinstance(device, str) and device:
        return device
    raise ConfigError(f"devices: expected numbers of CUDA devices, or 'cuda:N' and 'cpu', got {shown(device)}")
