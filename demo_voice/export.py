"""Writing the voice as a checkpoint folder; each file appears whole or not at all."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.checkpoint.releases import Json
from voxcpm_core.checkpoint.shapes import main_shapes, vae_shapes
from voxcpm_core.checkpoint.write import atomic_path, write_safetensors
from voxcpm_core.config import ModelConfig
from voxcpm_core.dtypes import TORCH_DTYPES

MAIN_FILE, VAE_FILE = "model.safetensors", "audiovae.safetensors"
VAE_DTYPE = torch.float16  # half the bytes; loaders compute with it in float32


@contextmanager
def _undisturbed() -> Iterator[None]:
    """The signals that end a training, and those of its workers' end, are heard when the writing is over.

    Of the main thread, where Python runs its handlers whichever thread a signal comes to.
    """
    heard: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: heard.append(number))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in heard:
            signal.raise_signal(number)


def write_config(folder: Path, values: Json) -> ModelConfig:
    """Make the folder and its config.json; raises ConfigError when the engine could not read it."""
    config = ModelConfig.from_json(values)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(folder / "config.json") as partial:
        partial.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return config


@_undisturbed()
def write_main(folder: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write the main weights in the configuration's dtype."""
    shapes, dtype = main_shapes(config), TORCH_DTYPES[config.dtype]
    converted = ((name, tensors[name].detach().to(device="cpu", dtype=dtype)) for name in shapes)
    write_safetensors(folder / MAIN_FILE, shapes, dict.fromkeys(shapes, dtype), converted)


@_undisturbed()
def write_vae(folder: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write the AudioVAE's weights in half precision."""
    shapes = vae_shapes(config.vae)
    converted = ((name, tensors[name].detach().to(device="cpu", dtype=VAE_DTYPE)) for name in shapes)
    write_safetensors(folder / VAE_FILE, shapes, dict.fromkeys(shapes, VAE_DTYPE), converted)


def read_main(folder: Path, config: ModelConfig) -> dict[str, Tensor] | None:
    """The main weights that a folder holds, in float32, or None; errors as in `read_tensors`."""
    if not (folder / MAIN_FILE).is_file():
        return None
    return {name: tensor.float() for name, tensor in read_tensors(folder, config).items()}


def read_vae(folder: Path, config: ModelConfig) -> dict[str, Tensor] | None:
    """The AudioVAE's weights that a folder holds, in float32, or None; errors as in `read_vae_tensors`."""
    if not (folder / VAE_FILE).is_file():
        return None
    return {name: tensor.float() for name, tensor in read_vae_tensors(folder, config).items()}


def folder_bytes(folder: Path) -> int:
    """What a folder's files take."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
