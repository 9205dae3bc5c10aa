"""Adapters with random weights in a folder of adapters, and requests that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checkpoint.lora_folder import make_lora
from voxcpm_core.config import ModelConfig
from voxcpm_core.lora.folder import LoraFolder
from voxcpm_core.types import LoraRef


def add_adapter(root: Path, model: ModelConfig, path: str, **options: Any) -> LoraRef:
    """A new adapter, as a request that names it refers to it."""
    make_lora(root / path, model, **options)
    return ref_of(root, path)


def ref_of(root: Path, path: str, name: str = "") -> LoraRef:
    """A name is the path's unless it has another."""
    return LoraRef(name or path, path, LoraFolder(str(root), path).digests()[0])
