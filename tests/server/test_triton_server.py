"""Starting, failing and stopping a real tritonserver."""

from __future__ import annotations

import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.lifecycle import wait_until
from tests.server_process import DOUBLE_REPOSITORY, make_server, require_installation
from voxcpm_client.server import ServerError, TritonServer, ports, scratch, shared_memory

pytestmark = pytest.mark.server

SHM = Path("/dev/shm")
NO_PID = 2**22 + 1  # above the kernel's limit
KILLED_S = 5  # what the kernel may take to end processes that were killed


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
        server.stop()
    wait_until(lambda: _group_is_gone(pid), KILLED_S)
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
    wait_until(lambda: _group_is_gone(pid), KILLED_S)
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


def test_a_taken_port_is_reported_before_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = TritonServer(DOUBLE_REPOSITORY, grpc_port=port, log_file=tmp_path / "log")
        with pytest.raises(ServerError, match=rf"^--grpc-port {port}: "), server:
            pass
    assert not (tmp_path / "log").exists()


def test_another_server_s_answer_is_not_readiness(
    double_server: TritonServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers that start at once both find their ports free, and one of them fails later."""
    monkeypatch.setattr(ports, "require_free", lambda _host, _ports: None)
    names = {"http_port": double_server.http_url, "grpc_port": double_server.grpc_url}
    same = {name: int(url.rpartition(":")[2]) for name, url in names.items()}
    server = TritonServer(DOUBLE_REPOSITORY, log_file=tmp_path / "log", **same)
    with pytest.raises(ServerError, match=r"before it was ready; GRPC service: .*already in use"), server:
        pass
    assert double_server.is_ready()


@pytest.mark.parametrize("arguments", [["--exit-timeout-secs=120"], ["--exit-timeout-secs", "120", "--id=x"]])
def test_streams_get_the_time_that_triton_was_told_to_give_them(arguments: list[str]) -> None:
    assert TritonServer(DOUBLE_REPOSITORY, arguments=arguments).exit_timeout_s == 120
    assert TritonServer(DOUBLE_REPOSITORY).exit_timeout_s == 30


def test_not_ready_in_time(tmp_path: Path) -> None:
    server = make_server(tmp_path / "log", repository=DOUBLE_REPOSITORY)
    server.start()
    try:
        with pytest.raises(ServerError, match=r"not ready after 0 s; the end of its log"):
            server.wait_until_ready(timeout_s=0)
    finally:
        server.stop(grace_s=0)


@pytest.mark.soak
def test_two_servers_do_not_meet(start_server: Callable[..., TritonServer]) -> None:
    first = start_server(repository=DOUBLE_REPOSITORY)
    second = start_server(repository=DOUBLE_REPOSITORY)
    addresses = {first.grpc_url, first.http_url, first.metrics_url}
    addresses |= {second.grpc_url, second.http_url, second.metrics_url}
    assert len(addresses) == 6
    second.stop()
    assert first.is_ready()


def test_a_killed_owner_s_regions_are_swept() -> None:
    abandoned = SHM / f"voxcpm_triton_shm_{NO_PID}_0a1b2c3d_region"
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


def test_a_killed_owner_s_folder_is_swept_once_no_process_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    abandoned, used, living, foreign = (
        tmp_path / f"voxcpm-server-{name}" for name in (f"{NO_PID}-a1", f"{NO_PID}-b2", f"{os.getpid()}-a1", "mine")
    )
    for folder in (abandoned, used, living, foreign):
        (folder / "backends").mkdir(parents=True)
    command = [sys.executable, "-c", "input()", f"--backends={used}/backends"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as server:
        arguments = Path(f"/proc/{server.pid}/cmdline")
        wait_until(lambda: b"--backends=" in arguments.read_bytes(), 10)  # exec has gone all the way
        scratch.sweep_abandoned()
        assert [each.exists() for each in (abandoned, used, living, foreign)] == [False, True, True, True]
        server.kill()
    scratch.sweep_abandoned()
    assert not used.exists()


def test_a_mapped_region_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a folder of its own: servers that start beside this test sweep /dev/shm, and could do so before it is mapped.
    monkeypatch.setattr(shared_memory, "_FOLDER", tmp_path)
    region = tmp_path / f"voxcpm_triton_shm_{NO_PID}_0a1b2c3d_mapped"
    region.write_bytes(b"x" * 4096)
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        shared_memory.sweep_abandoned()
        assert region.exists()
    shared_memory.sweep_abandoned()
    assert not region.exists()
