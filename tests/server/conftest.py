"""A server with hardly any room, for what happens to those who wait."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.instance import Instance
from tests.server_process import ADMIN_TOKEN, make_server, require_installation
from voxcpm_client.server import find_repository

QUEUE_SIZE = 4


@contextmanager
def narrow_server(folder: Path, *arguments: str) -> Iterator[Instance]:
    """One stream runs, one waits in the engine, one for each instance at the gate, and Triton's queue is short."""
    require_installation(dict(os.environ))
    repository = folder / "models"
    shutil.copytree(find_repository(), repository)
    config = repository / "voxcpm" / "config.pbtxt"
    shipped = config.read_text()
    config.write_text(shipped.replace("max_queue_size: 256", f"max_queue_size: {QUEUE_SIZE}"))
    assert config.read_text() != shipped
    # One thread: with many cores a long prefill would not be long.
    settings = {"VOXCPM_MAX_RUNNING": "1", "VOXCPM_MAX_WAITING": "1", "OMP_NUM_THREADS": "1"}
    settings |= {"VOXCPM_VOICES": str(folder / "voices"), "VOXCPM_ADMIN_TOKEN": ADMIN_TOKEN}
    server = make_server(folder / "tritonserver.log", repository=repository, arguments=arguments, **settings)
    with server, Instance(server) as instance:
        yield instance


@pytest.fixture(scope="session")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with narrow_server(tmp_path_factory.mktemp("narrow")) as instance:
        yield instance
