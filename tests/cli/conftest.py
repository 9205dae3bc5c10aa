"""Running the command line as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from voxcpm_client.cli.app import main

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "voxcpm_client"]
LIMIT_S = 120


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without settings of a model, and with the checkout importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VOXCPM_")}
    return {**kept, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'client'}", "COLUMNS": "120", **extra}


@pytest.fixture
def cli() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """`cli("say", ...)` runs `voxcpm-triton say ...` to its end; `given` is its standard input."""

    def run(*arguments: str | Path, given: bytes = b"", **extra: str) -> subprocess.CompletedProcess[bytes]:
        command = [*COMMAND, *map(str, arguments)]
        return subprocess.run(
            command, env=environment(**extra), cwd=ROOT, input=given, capture_output=True, timeout=LIMIT_S
        )

    return run


@pytest.fixture
def cli_here(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """The same in this process, for commands that would take seconds to import what is imported here already."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
        command = ["voxcpm-triton", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfdbinary.readouterr()
        return subprocess.CompletedProcess(command, int(ended.value.code or 0), out, err)

    return run
