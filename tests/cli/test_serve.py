"""`serve` in the foreground."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, LIMIT_S, ROOT, environment
from tests.server_process import require_installation
from voxcpm_client import synthesize

pytestmark = pytest.mark.server

FREE_PORTS = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")


@pytest.fixture
def serving() -> Iterator[subprocess.Popen[str]]:
    require_installation(dict(os.environ))
    command = [*COMMAND, "serve", "--device", "cpu", *FREE_PORTS, "--", "--exit-timeout-secs=5", "--id=from-the-test"]
    process = subprocess.Popen(
        command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    yield process
    watchdog.cancel()
    if process.poll() is None:
        process.terminate()
    process.communicate()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_serve_until_a_signal(serving: subprocess.Popen[str], ending: signal.Signals) -> None:
    assert serving.stdout is not None
    lines = []
    for line in serving.stdout:
        lines.append(line)
        found = re.search(r"ready: gRPC (\S+), HTTP", line)
        if found:
            break
    else:
        pytest.fail("".join(lines[-30:]))
    log = "".join(lines)
    assert "taking the demo checkpoint: its weights are random" in log
    assert re.search(r"server_id +\| from-the-test", log)
    speech = synthesize("Hello.", url=found.group(1), max_length=1, inference_timesteps=2)
    assert speech.num_samples > 0
    (server_pid,) = _children(serving.pid)
    serving.send_signal(ending)
    rest, _ = serving.communicate(timeout=LIMIT_S)
    assert serving.returncode == 0, rest
    assert not Path(f"/proc/{server_pid}").exists()


def test_a_checkpoint_that_is_not_there(cli: Callable[..., subprocess.CompletedProcess[bytes]]) -> None:
    require_installation(dict(os.environ))
    done = cli("serve", "--model", "/nowhere/at/all", "--device", "cpu", *FREE_PORTS)
    assert done.returncode == 1
    assert b"/nowhere/at/all" in done.stdout + done.stderr
    assert b"voxcpm-triton: tritonserver ended with exit status 1 before it was ready" in done.stderr


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
