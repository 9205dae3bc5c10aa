"""The file formats of weights: each opener lists what a file holds without reading the tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from voxcpm_core.errors import CheckpointError, shown

_FLOAT_TYPES = {"F64", "F32", "F16", "BF16", *map(str, (torch.float64, torch.float32, torch.float16, torch.bfloat16))}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file."""

    shape: tuple[int, ...]
    dtype: str  # as its file format spells it
    load: Callable[[], torch.Tensor]

    @property
    def is_float(self) -> bool:
        return self.dtype in _FLOAT_TYPES


def open_safetensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one .safetensors file."""
    try:
        file: Any = safe_open(path, framework="pt", device="cpu")
        return {name: _stored_slice(file, name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: cannot be read as safetensors, truncated or damaged? ({error})") from None


def _stored_slice(file: Any, name: str) -> StoredTensor:
    stored = file.get_slice(name)
    return StoredTensor(tuple(stored.get_shape()), stored.get_dtype(), lambda: file.get_tensor(name))


def open_sharded(index_path: Path) -> dict[str, StoredTensor]:
    """The tensors of all shards that a `model.safetensors.index.json` names."""
    try:
        names: dict[str, str] = dict(json.loads(index_path.read_text(encoding="utf-8"))["weight_map"])
    except (OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{index_path}: expected a JSON object with 'weight_map'") from None
    shards: dict[str, dict[str, StoredTensor]] = {}
    for shard in dict.fromkeys(names.values()):
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(f"{index_path}: shard {shown(shard)} is not the name of a file beside it")
        shards[shard] = open_safetensors(index_path.parent / shard)
    stored: dict[str, StoredTensor] = {}
    for name, shard in names.items():
        if name not in shards[shard]:
            raise CheckpointError(f"{index_path.with_name(shard)}: tensor {name}, listed in the index, is missing")
        stored[name] = shards[shard].pop(name)
    for shard, rest in shards.items():
        if rest:
            raise CheckpointError(f"{index_path.with_name(shard)}: tensor {min(rest)} is not listed in the index")
    return stored


def open_pickle(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file written by torch.save: a dictionary, possibly under "state_dict"; no code is run."""
    try:
        values = _torch_load(path)
    except Exception as error:  # torch raises nearly anything on a damaged file
        reason = str(error).split("\n", 1)[0]
        raise CheckpointError(f"{path}: cannot be read by torch.load, truncated or damaged? ({reason})") from None
    if isinstance(values, dict):
        values = values.get("state_dict", values)
    if not isinstance(values, dict) or not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise CheckpointError(f"{path}: expected a dictionary of tensors")
    return {name: _stored(tensor) for name, tensor in values.items()}


def _stored(tensor: torch.Tensor) -> StoredTensor:
    return StoredTensor(tuple(tensor.shape), str(tensor.dtype), lambda: tensor)


def _torch_load(path: Path) -> Any:
    with path.open("rb") as file:
        name = f"/proc/self/fd/{file.fileno()}"  # torch maps no file whose name Python cannot write as UTF-8
        try:
            return torch.load(name, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError as error:
            if "mmap" not in str(error):
                raise
            return torch.load(name, map_location="cpu", weights_only=True)  # before torch 1.6: cannot be mapped
