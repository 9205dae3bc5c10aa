"""Latents in files: .npy, or .safetensors with a tensor called prompt or reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from voxcpm_client.cli.partial import partial_beside
from voxcpm_client.types import FloatArray

_SUFFIXES = (".safetensors", ".npy")


def write_latents(path: Path, role: str, make: Callable[[], FloatArray]) -> FloatArray:
    """Write what `make` gives; the file gets its name when it is whole.

    Raises ValueError for another suffix before `make` is called, and OSError.
    """
    _check(path)
    latents = make()
    partial = partial_beside(path)
    try:
        with partial.open("wb") as file:
            if path.suffix == ".npy":
                np.save(file, latents)
            else:
                from safetensors.numpy import save

                file.write(save({role: np.ascontiguousarray(latents)}))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return latents


def read_latents(path: Path, role: str) -> FloatArray:
    """Raises ValueError for a file that holds no latents of that role, and OSError."""
    _check(path)
    if path.suffix == ".npy":
        array: FloatArray = np.load(path, allow_pickle=False)
        return array
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(path.read_bytes())
    except SafetensorError:
        raise ValueError(f"{path}: not a safetensors file") from None
    if role not in tensors:
        raise ValueError(f"{path}: holds no tensor {role!r}, but {', '.join(sorted(tensors)) or 'none'}")
    return tensors[role]


def given_latents(path: Path | None, role: str) -> FloatArray | None:
    """`read_latents` of an option, which may be absent."""
    return None if path is None else read_latents(path, role)


def _check(path: Path) -> None:
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"{path}: latents are kept in files that end with {' or '.join(_SUFFIXES)}")
