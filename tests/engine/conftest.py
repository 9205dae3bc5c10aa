"""Tiny checkpoints, and the official models of them."""

from pathlib import Path

import pytest

from tests.oracle.fixtures import official_models, tiny_checkpoints
from voxcpm_core.checkpoint.random_init import make_checkpoint

__all__ = ["official_models", "tiny_checkpoints"]


@pytest.fixture(scope="session")
def stopping_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny VoxCPM2 whose stop head fires at times that depend on the text."""
    folder = tmp_path_factory.mktemp("stopping") / "2"
    make_checkpoint(folder, size="tiny", generation="2", seed=4, dtype="float32", stop_bias=0.3)
    return folder
