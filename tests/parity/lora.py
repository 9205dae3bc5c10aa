"""Checkpoints with an adapter merged in."""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors.torch import save_file

from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.lora import merge_lora, read_lora
from voxcpm_core.checkpoint.read import read_tensors


def merged_checkpoint(folder: Path, lora: Path, out: Path) -> Path:
    """A copy of a checkpoint folder whose weights have the adapter added."""
    config = load_config(folder)
    merged = merge_lora(read_tensors(folder), read_lora(lora, config))
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("pytorch_model.bin", "model.safetensors"))
    save_file({name: tensor.contiguous() for name, tensor in merged.items()}, out / "model.safetensors")
    return out
