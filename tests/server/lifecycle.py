"""What a server consists of while it lives, and asking it to load and unload."""

from __future__ import annotations

import http.client
import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.soak.processes import Holding, holdings
from voxcpm_client.server import TritonServer

SHM_PREFIX = f"voxcpm_triton_shm_{os.getpid()}_"


def family(server: TritonServer) -> list[Holding]:
    return [each for each in holdings(server.pid) if each.role != "tritonserver"]


def wait_until(condition: Callable[[], bool], limit_s: float) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, f"not so after {limit_s} s"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Ended; one that init has yet to reap counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def post(server: TritonServer, path: str) -> int:
    connection = http.client.HTTPConnection(server.http_url, timeout=120)
    try:
        connection.request("POST", path, b"{}")
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()
