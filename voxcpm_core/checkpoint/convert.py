"""Converting pickled weights to safetensors, which map into memory and run no code."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch

from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.checkpoint.write import write_safetensors

_SIDE_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def convert(folder: Path, out: Path | None = None) -> list[Path]:
    """Write `model.safetensors` and `audiovae.safetensors` of a checkpoint beside the originals, or into `out`.

    Returns the files written; without `out`, files that are there already are left alone. The originals stay. With
    `out`, configuration and tokenizer go along. Raises ConfigError or CheckpointError, before anything is written,
    when the tensors do not fit the configuration.
    """
    config = load_config(folder)
    sources: dict[str, Mapping[str, torch.Tensor]] = {
        "model.safetensors": read_tensors(folder, config),
        "audiovae.safetensors": read_vae_tensors(folder, config),
    }
    target = out or folder
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, tensors in sources.items():
        path = target / name
        if out is None and path.exists():
            continue
        shapes = {tensor_name: tuple(tensor.shape) for tensor_name, tensor in tensors.items()}
        dtypes = {tensor_name: tensor.dtype for tensor_name, tensor in tensors.items()}
        write_safetensors(path, shapes, dtypes, tensors.items())
        written.append(path)
    for name in _SIDE_FILES:
        source = folder / name
        if out is not None and source.is_file() and not (out / name).exists():
            shutil.copyfile(source, out / name)
    return written
