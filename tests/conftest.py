"""Servers shared by the tests. Their logs are kept in pytest's temporary folder and shown when a start fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from tests.server_process import (
    ADMIN_TOKEN,
    DOUBLE_REPOSITORY,
    MAX_BLOCKING,
    make_server,
    require_installation,
)
from tests.triton_crashes import lasting
from tests.triton_crashes import pytest_runtest_protocol as pytest_runtest_protocol
from voxcpm_client.server import TritonServer, find_repository

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's job in the background, whose children would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def triton_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """One server with the noise voice, and all models, for the whole session.

    `grpc_url` and `http_url` are `host:port`.
    """
    require_installation(dict(os.environ))
    folder = tmp_path_factory.mktemp("triton")
    loras = folder / "loras"
    loras.mkdir()
    settings = {"VOXCPM_VOICES": str(folder / "voices"), "VOXCPM_LORA_ROOT": str(loras)}
    settings |= {"VOXCPM_ADMIN_TOKEN": ADMIN_TOKEN, "VOXCPM_MAX_BLOCKING": str(MAX_BLOCKING)}
    with lasting(make_server(folder / "tritonserver.log", repository=find_repository(), **settings)) as server:
        yield server


@pytest.fixture(scope="session")
def double_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """One server whose only model, `double`, misbehaves on request."""
    require_installation(dict(os.environ))
    log_file = tmp_path_factory.mktemp("double") / "tritonserver.log"
    with lasting(make_server(log_file, repository=DOUBLE_REPOSITORY)) as server:
        yield server


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., TritonServer]]:
    """Starts servers with other settings: `start_server(VOXCPM_MAX_RUNNING="2")`; all stop when the test ends."""
    require_installation(dict(os.environ))
    with ExitStack() as servers:
        started = 0

        def start(**options: object) -> TritonServer:
            nonlocal started
            started += 1
            return servers.enter_context(make_server(tmp_path / f"tritonserver{started}.log", **options))

        yield start
