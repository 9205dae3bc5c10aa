"""Reading the weights of a checkpoint folder, strictly: every tensor of the table, in its shape, and no other.

Files are mapped into memory and a tensor is read when it is asked for, so a model is never held twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from voxcpm_core.checkpoint.files import StoredTensor, open_pickle, open_safetensors, open_sharded
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.shapes import VAE_BOUNDARIES, Shapes, main_shapes, vae_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import CheckpointError

Opener = Callable[[Path], dict[str, StoredTensor]]

MAIN_FILES: dict[str, Opener] = {  # in the order in which they are looked for
    "model.safetensors": open_safetensors,
    "model.safetensors.index.json": open_sharded,
    "pytorch_model.bin": open_pickle,
}
VAE_FILES: dict[str, Opener] = {"audiovae.safetensors": open_safetensors, "audiovae.pth": open_pickle}


class CheckpointTensors(Mapping[str, torch.Tensor]):
    """Name to tensor, in the file's dtype on the CPU; each access reads the tensor from the mapped file."""

    def __init__(self, stored: dict[str, StoredTensor]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._stored[name].load()

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def read_tensors(folder: Path, config: ModelConfig | None = None) -> CheckpointTensors:
    """The main weights of a folder (`config` defaults to its config.json).

    Raises CheckpointError naming the file and, when one is missing, unknown or misshapen, the tensor.
    """
    config = config or load_config(folder)
    path, opener = _find(folder, MAIN_FILES)
    return CheckpointTensors(_checked(path, opener(path), main_shapes(config)))


def read_vae_tensors(folder: Path, config: ModelConfig | None = None) -> CheckpointTensors:
    """The AudioVAE's weights of a folder, weight norm not folded; errors as in `read_tensors`."""
    config = config or load_config(folder)
    path, opener = _find(folder, VAE_FILES)
    tensors = CheckpointTensors(_checked(path, opener(path), vae_shapes(config.vae)))
    expected = config.vae.sample_rate_boundaries
    if expected and (found := tuple(tensors[VAE_BOUNDARIES].tolist())) != expected:
        raise CheckpointError(f"{path}: {VAE_BOUNDARIES} is {found}, but config.json says {expected}")
    return tensors


def _find(folder: Path, openers: Mapping[str, Opener]) -> tuple[Path, Opener]:
    for name, opener in openers.items():
        if (folder / name).is_file():
            return folder / name, opener
    raise CheckpointError(f"{folder}: none of {', '.join(openers)} is there")


def _checked(path: Path, stored: dict[str, StoredTensor], shapes: Shapes) -> dict[str, StoredTensor]:
    missing = [name for name in shapes if name not in stored]
    if missing:
        raise CheckpointError(
            f"{path}: tensor {missing[0]} of shape {shapes[missing[0]]} is missing{_others(len(missing))}"
        )
    extra = [name for name in stored if name not in shapes]
    if extra:
        raise CheckpointError(
            f"{path}: tensor {extra[0]} of shape {stored[extra[0]].shape} does not belong to this model, which has no "
            f"such tensor{_others(len(extra))}"
        )
    for name, shape in shapes.items():
        found = stored[name]
        if found.shape != shape:
            raise CheckpointError(f"{path}: tensor {name} has shape {found.shape}, expected {shape}")
        if found.is_float != (name != VAE_BOUNDARIES):
            raise CheckpointError(f"{path}: tensor {name} has the unsupported type {found.dtype}")
    return {name: stored[name] for name in shapes}


def _others(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
