"""Fixtures around the oracle. A test package imports them by name in its conftest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.model import OfficialModel
from voxcpm_core.checkpoint.random_init import make_checkpoint

GENERATIONS = ("0.5", "1.5", "2")


@pytest.fixture(scope="session")
def tiny_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny float32 checkpoint folder per generation."""
    root = tmp_path_factory.mktemp("tiny_checkpoints")
    folders = {generation: root / generation for generation in GENERATIONS}
    for generation, folder in folders.items():
        make_checkpoint(folder, size="tiny", generation=generation, seed=0, dtype="float32")
    return folders


@pytest.fixture(scope="session")
def official_models(tiny_checkpoints: dict[str, Path]) -> dict[str, OfficialModel]:
    """The official package's model of each of them."""
    return {generation: OfficialModel(folder) for generation, folder in tiny_checkpoints.items()}
