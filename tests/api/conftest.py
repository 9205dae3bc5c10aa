"""Pools on the noise voice. Tests that share one leave it as they found it: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.speaking import SMALL
from tests.noise_voice import NOISE
from voxcpm_core import VoxCPM
from voxcpm_core.api import SyncPool


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncPool]:
    folder = tmp_path_factory.mktemp("pool")
    (folder / "loras").mkdir()
    folders = {"voices": str(folder / "voices"), "lora_root": str(folder / "loras")}
    with VoxCPM.from_pretrained(NOISE, devices=["cpu"], **folders, **SMALL) as pool:
        assert isinstance(pool, SyncPool)
        yield pool


@pytest.fixture(scope="module")
def two_workers() -> Iterator[SyncPool]:
    with VoxCPM.from_pretrained(NOISE, devices=["cpu", "cpu"], **SMALL) as pool:
        assert isinstance(pool, SyncPool)
        yield pool
