"""Workers on the noise voice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from tests.engine.requests import crowd
from tests.worker.streams import CONFIG
from voxcpm_core.types import SpeechRequest
from voxcpm_core.worker import WorkerHandle, start_worker


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHandle]:
    """One for all tests of a module, which leave it as they found it. It serves adapters."""
    config = dataclasses.replace(CONFIG, lora_root=str(tmp_path_factory.mktemp("loras")))
    handle = start_worker(config, "cpu")
    yield handle
    handle.close()


@pytest.fixture
def own_worker() -> Iterator[WorkerHandle]:
    """One for a test that harms it."""
    handle = start_worker(CONFIG, "cpu")
    yield handle
    handle.close()


@pytest.fixture
def requests_of_all_kinds() -> list[SpeechRequest]:
    return crowd(12)
