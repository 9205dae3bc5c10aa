"""A server that dies in the middle of a test, as Triton's own fault makes it, and otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import os, signal, time

import pytest

from tests.server_process import DOUBLE_REPOSITORY

runs = dict.fromkeys(("once", "always", "killed", "own"), 0)


def lose(server, name, losses, number):
    runs[name] += 1
    if runs[name] <= losses:
        os.kill(server.pid, number)
        while server.exit_code() is None:
            time.sleep(0.01)
        raise AssertionError(f"run {runs[name]} of {name}")


def test_loses_its_own(start_server):
    lose(start_server(repository=DOUBLE_REPOSITORY), "own", 1, signal.SIGSEGV)


@pytest.mark.parametrize(("name", "losses", "number"), [
    ("once", 1, signal.SIGSEGV), ("always", 9, signal.SIGSEGV), ("killed", 1, signal.SIGKILL),
])
def test_loses_its_server(double_server, name, losses, number):
    assert double_server.is_ready()
    lose(double_server, name, losses, number)
"""


@pytest.mark.server
def test_a_test_that_loses_its_server_to_triton_runs_once_more(tmp_path: Path) -> None:
    (tmp_path / "test_inner.py").write_text(TESTS)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'client'}"}
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-rA", "test_inner.py"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    told = run.stdout
    assert "2 passed" in told, told + run.stderr
    assert "2 failed" in told
    assert "run 2 of always" in told  # once more, and not again
    assert "run 1 of killed" in told  # not once more
    assert "run again, since tritonserver died in a cancel" in told
    assert "tritonserver ended by itself, -9" in told
