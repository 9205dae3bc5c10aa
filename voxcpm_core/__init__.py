"""VoxCPM text-to-speech: model, continuous-batching engine, audio and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from voxcpm_core.errors import RequestError, StartupError

if TYPE_CHECKING:
    from voxcpm_core.api import VoxCPM

__all__ = ["RequestError", "StartupError", "VoxCPM"]


def __getattr__(name: str) -> Any:
    """`VoxCPM` at its first use, so that importing a submodule loads nothing else."""
    if name != "VoxCPM":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from voxcpm_core.api import VoxCPM

    return VoxCPM
