"""Starting, failing and stopping a real tritonserver."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server_process import DOUBLE_REPOSITORY, make_server, require_installation
from voxcpm_client.server import ServerError, TritonServer, shared_memory

pytestmark = pytest.mark.server

SHM = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _installation() -> None:
    require_installation(dict(os.environ))


def _group_is_gone(pgid: int) -> bool:
    """Whether no process of the group runs; zombies that init has yet to reap do not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == pgid and state != "Z":
            return False
    return True


def _regions() -> set[str]:
    return {file.name for file in SHM.glob(f"voxcpm_triton_shm_{os.getpid()}_*")}


def test_stop_leaves_nothing(tmp_path: Path) -> None:
    before = _regions()
    server = make_server(tmp_path / "log", repository=DOUBLE_REPOSITORY)
    with server:
        pid, url = server.pid, server.http_url
        assert server.is_ready()
        assert _regions() > before
    assert _group_is_gone(pid)
    assert _regions() == before
    assert not Path(f"/proc/{pid}").exists()
    host, port = url.split(":")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0


def test_stop_of_a_hung_server_kills_its_group(tmp_path: Path) -> None:
    before = _regions()
    server = make_server(tmp_path / "log", repository=DOUBLE_REPOSITORY)
    server.start()
    server.wait_until_ready(timeout_s=60)
    pid = server.pid
    os.killpg(pid, signal.SIGSTOP)
    started_s = time.monotonic()
    server.stop(grace_s=0.5)
    assert time.monotonic() - started_s < 5
    assert _group_is_gone(pid)
    assert _regions() == before


def test_early_exit_shows_the_log(tmp_path: Path) -> None:
    server = make_server(tmp_path / "log", repository=tmp_path / "nowhere")
    with pytest.raises(ServerError, match=r"(?s)ended with exit status 1 before it was ready.*nowhere"), server:
        pass


def test_a_model_that_does_not_load_is_named(tmp_path: Path) -> None:
    server = make_server(tmp_path / "log", VOXCPM_MODEL="nowhere/at-all", HF_HUB_OFFLINE="1")
    with pytest.raises(ServerError, match=r"before it was ready; model voxcpm: .*nowhere/at-all") as caught, server:
        pass
    assert "\n" not in str(caught.value)


def test_taken_port_is_an_early_exit(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = TritonServer(DOUBLE_REPOSITORY, grpc_port=port, log_file=tmp_path / "log")
        with pytest.raises(ServerError, match="before it was ready"), server:
            pass


def test_not_ready_in_time(tmp_path: Path) -> None:
    server = make_server(tmp_path / "log", repository=DOUBLE_REPOSITORY)
    server.start()
    try:
        with pytest.raises(ServerError, match=r"not ready after 0 s; the end of its log"):
            server.wait_until_ready(timeout_s=0)
    finally:
        server.stop(grace_s=0)


def test_two_servers_do_not_meet(start_server: Callable[..., TritonServer]) -> None:
    first = start_server(repository=DOUBLE_REPOSITORY)
    second = start_server(repository=DOUBLE_REPOSITORY)
    addresses = {first.grpc_url, first.http_url, first.metrics_url}
    addresses |= {second.grpc_url, second.http_url, second.metrics_url}
    assert len(addresses) == 6
    second.stop()
    assert first.is_ready()


def test_a_killed_owner_s_regions_are_swept() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    abandoned = SHM / f"voxcpm_triton_shm_{ended.pid}_0a1b2c3d_region"
    living = SHM / f"voxcpm_triton_shm_{os.getpid()}_0a1b2c3d_region"
    foreign = SHM / "another_programs_region"
    files = (abandoned, living, foreign)
    try:
        for file in files:
            file.write_bytes(b"x")
        shared_memory.sweep_abandoned()
        assert [file.exists() for file in files] == [False, True, True]
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def test_a_mapped_region_is_not_swept() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    region = SHM / f"voxcpm_triton_shm_{ended.pid}_0a1b2c3d_region"
    region.write_bytes(b"x" * 4096)
    script = f"""
import mmap
with open({str(region)!r}, "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 4096)
print(1, flush=True)
input()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as mapper:
        assert mapper.stdout is not None
        mapper.stdout.readline()
        shared_memory.sweep_abandoned()
        kept = region.exists()
        mapper.communicate(b"\n")
    shared_memory.sweep_abandoned()
    assert kept
    assert not region.exists()
