"""`serve` in the foreground."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkpoint.lora_folder import make_lora
from tests.cli.conftest import COMMAND, LIMIT_S, ROOT, environment
from tests.processes import children_by_parent
from tests.server.clips import clip
from tests.server_process import DOUBLE_REPOSITORY, require_installation
from voxcpm_client import Client, stream, synthesize
from voxcpm_client.control.token import find_token
from voxcpm_client.errors import Forbidden, ServerUnavailable
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.locate import DEMO_FOLDER

pytestmark = pytest.mark.server

FREE_PORTS = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")


@dataclass
class Serving:
    """`serve` in a process of its own; what it has printed is in `log`."""

    process: subprocess.Popen[str]
    grpc_url: str = ""
    log: str = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log += line
            found = re.search(pattern, line)
            if found:
                return found
        pytest.fail(self.log[-5000:])


@pytest.fixture
def serving() -> Iterator[Callable[..., Serving]]:
    """`serving("--device", "cpu")` returns once the server is ready."""
    require_installation(dict(os.environ))
    with ExitStack() as ends:

        def start(*arguments: str, exit_timeout_s: int = 5) -> Serving:
            own = (f"--exit-timeout-secs={exit_timeout_s}", "--id=from-the-test")
            command = [*COMMAND, "serve", "--device", "cpu", *FREE_PORTS, *arguments, "--", *own]
            server = Serving(
                subprocess.Popen(
                    command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
            ends.callback(_end, server.process)
            watchdog = threading.Timer(LIMIT_S, server.process.kill)
            watchdog.start()
            ends.callback(watchdog.cancel)
            server.grpc_url = server.read_until(r"ready: gRPC (\S+), HTTP").group(1)
            return server

        yield start


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    process.communicate()


def test_serve_until_ctrl_c(
    serving: Callable[..., Serving], cli: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path
) -> None:
    make_lora(tmp_path / "loras" / "low", load_config(DEMO_FOLDER))
    server = serving("--voices", str(tmp_path / "voices"), "--lora-root", str(tmp_path / "loras"))
    assert "taking the demo checkpoint: a small English voice" in server.log
    assert re.search(r"server_id +\| from-the-test", server.log)
    speech = synthesize("Hello.", url=server.grpc_url, max_length=1, inference_timesteps=2)
    assert speech.num_samples > 0
    _assert_that_a_second_one_on_its_port_leaves_it_alone(server, cli)
    _assert_that_its_token_works_for_its_user(server, cli, tmp_path)
    _assert_ends(server, signal.SIGINT)
    assert find_token(server.grpc_url) is None


def _assert_that_a_second_one_on_its_port_leaves_it_alone(
    server: Serving, cli: Callable[..., subprocess.CompletedProcess[bytes]]
) -> None:
    token, port = find_token(server.grpc_url), server.grpc_url.rpartition(":")[2]
    done = cli("serve", "--model", "demo", *FREE_PORTS, "--grpc-port", port)
    assert done.returncode == 1
    assert f"--grpc-port {port}: cannot listen".encode() in done.stderr
    assert find_token(server.grpc_url) == token


def _assert_that_its_token_works_for_its_user(
    server: Serving, cli: Callable[..., subprocess.CompletedProcess[bytes]], folder: Path
) -> None:
    token = find_token(server.grpc_url)
    assert token is not None
    assert token not in server.log
    clip_file = folder / "clip.wav"
    clip_file.write_bytes(clip())
    done = cli("voices", "add", "anna", "--reference-audio", clip_file, "--url", server.grpc_url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"anna: reference, ")
    assert cli("voices", "remove", "anna", "--url", server.grpc_url, VOXCPM_ADMIN_TOKEN="x").returncode == os.EX_NOPERM
    assert list((folder / "voices").iterdir()) != []
    done = cli("loras", "register", "anna", "--path", "low", "--url", server.grpc_url)
    assert done.stdout.startswith(b"anna: rank 4, low, "), done.stderr
    with Client(url=server.grpc_url) as client:
        assert client.queue() == []
    with Client(url=server.grpc_url, token="wrong") as client, pytest.raises(Forbidden, match="VOXCPM_ADMIN_TOKEN"):
        client.queue()


def _assert_ends(server: Serving, ending: signal.Signals) -> None:
    (server_pid,) = children_by_parent()[server.process.pid]
    server.process.send_signal(ending)
    rest, _ = server.process.communicate(timeout=LIMIT_S)
    assert server.process.returncode == 0, rest
    assert "running streams may go on for at most 5 s" in rest
    assert not Path(f"/proc/{server_pid}").exists()


def test_a_checkpoint_that_is_not_there(cli: Callable[..., subprocess.CompletedProcess[bytes]]) -> None:
    require_installation(dict(os.environ))
    done = cli("serve", "--model", "/nowhere/at/all", "--device", "cpu", *FREE_PORTS)
    assert done.returncode == 1
    lines = done.stderr.decode().splitlines()
    failure = "voxcpm-triton: tritonserver ended with exit status 1 before it was ready"
    assert re.match(rf"{failure}; model \w+, model \w+: model '/nowhere/at/all'", lines[-1])
    assert done.stderr.decode().count("/nowhere/at/all") == 1
    assert len(lines) < 30


def test_a_taken_port(cli: Callable[..., subprocess.CompletedProcess[bytes]]) -> None:
    require_installation(dict(os.environ))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("serve", "--model", "demo", *FREE_PORTS, "--http-port", port)
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"voxcpm-triton: --http-port {port}: cannot listen on 127.0.0.1:{port}")


def test_a_copied_repository_beside_another_model(serving: Callable[..., Serving], tmp_path: Path) -> None:
    fleet = tmp_path / "our models"
    shutil.copytree(ROOT / "model_repository" / "voxcpm", fleet / "voxcpm")
    shutil.copytree(DOUBLE_REPOSITORY / "double", fleet / "double")
    server = serving("--model", "demo", "--model-repository", str(fleet))
    assert synthesize("Hello.", url=server.grpc_url, max_length=1, inference_timesteps=2).num_samples > 0
    assert synthesize("latents", url=server.grpc_url, model="double").audio == b"ab"
    _assert_ends(server, signal.SIGTERM)


def test_a_second_signal_cuts_running_streams(serving: Callable[..., Serving]) -> None:
    server = serving("--model-repository", str(DOUBLE_REPOSITORY), exit_timeout_s=60)
    chunks = stream("silence", url=server.grpc_url, model="double")
    next(chunks)
    (server_pid,) = children_by_parent()[server.process.pid]
    server.process.send_signal(signal.SIGINT)
    said = server.read_until(r"stopping: .*")
    assert "at most 60 s; Ctrl-C again stops at once" in said.group(0)
    time.sleep(1)
    assert server.process.poll() is None
    started_s = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    with pytest.raises(ServerUnavailable):
        next(chunks)
    rest, _ = server.process.communicate(timeout=LIMIT_S)
    assert time.monotonic() - started_s < 5
    assert "stopped at once" in rest
    assert server.process.returncode == 130
    assert not Path(f"/proc/{server_pid}").exists()
