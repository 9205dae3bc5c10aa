"""A documented `serve` command, run as it stands there but for its ports."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server_process import require_installation

SERVE = "voxcpm-triton serve "
LIMIT_S = 120
FREE_PORTS = "--http-port 0 --grpc-port 0 --metrics-port 0"


def user_environment() -> dict[str, str]:
    """That of a shell which has activated the environment, without a setting of the model."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("VOXCPM_")}
    return ours | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def run_as_user(commands: str, folder: Path) -> None:
    """Bash commands, none of which may fail."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env=user_environment(), capture_output=True,
        text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def served(command: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Its gRPC and HTTP addresses, once it is ready. It must end well when it is told to."""
    require_installation(dict(os.environ))
    assert command.startswith(SERVE)
    _, *arguments = shlex.split(command.replace(SERVE, f"{SERVE}{FREE_PORTS} "), comments=True)
    log = folder / "serve.log"
    with log.open("w") as printed, subprocess.Popen(
        [sys.executable, "-m", "voxcpm_client", *arguments], cwd=folder, env=user_environment(),
        stdout=printed, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        watchdog = threading.Timer(LIMIT_S, server.kill)
        watchdog.start()
        try:
            yield _addresses(server)
        finally:
            watchdog.cancel()
            server.terminate()
            server.communicate()
    assert server.returncode == 0


def _addresses(server: subprocess.Popen[str]) -> tuple[str, str]:
    assert server.stderr is not None
    seen = []
    for line in server.stderr:
        seen.append(line)
        if found := re.search(r"ready: gRPC (\S+), HTTP (\S+),", line):
            return found[1], found[2]
    raise AssertionError("".join(seen[-50:]))
