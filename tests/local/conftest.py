"""Sockets in a folder of the test's own, and processes that stand for a tritonserver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """XDG_RUNTIME_DIR, with a path longer than a socket's address may be."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def start_process() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes that wait until the test ends."""
    with ExitStack() as processes:

        def start() -> subprocess.Popen[bytes]:
            process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            processes.enter_context(process)
            processes.callback(process.kill)
            return process

        yield start
