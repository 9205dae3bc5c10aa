"""Every command and program of README.md runs, as it stands there, against a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from tests.served_command import SERVE, run_as_user, served
from tests.server_process import ADMIN_TOKEN

README = Path(__file__).parent.parent / "README.md"
NOT_RUN = "not run here"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)


def localised(text: str, server) -> str:
    """The same text with the test server's ports, and without the lines that say that they are not run."""
    lines = [line for line in text.splitlines() if NOT_RUN not in line]
    return "\n".join(lines).replace("localhost:8000", server.http_url).replace("localhost:8001", server.grpc_url)


def run(arguments: list[str], folder: Path, server) -> subprocess.CompletedProcess[str]:
    scripts = str(Path(sys.executable).parent)
    environment = os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "VOXCPM_ADMIN_TOKEN": ADMIN_TOKEN}
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done


def test_readme_is_short_and_its_blocks_are_found():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150
    assert len(blocks("bash")) == 2
    assert len(blocks("python")) == 3


@pytest.mark.server
def test_commands(triton_server, tmp_path):
    serve, *lines = localised(blocks("bash")[0], triton_server).splitlines()
    assert serve.startswith(SERVE)
    commands = "\n".join(lines)
    for command in ("say", "bench", "voices add"):
        commands = commands.replace(
            f"voxcpm-triton {command}", f"voxcpm-triton {command} --url {triton_server.grpc_url}"
        )
    assert [commands.count(f"{command} --url") for command in ("say", "bench", "voices add")] == [6, 1, 1]
    run(["bash", "-euc", commands], tmp_path, triton_server)
    assert (tmp_path / "hello.pcm").stat().st_size > 0
    for name in ("hello.wav", "more.mp3", "voice.wav", "anna.wav", "text.wav"):
        assert soundfile.info(tmp_path / name).samplerate == 48000


@pytest.mark.server
def test_the_first_command_serves_and_keeps_voices(tmp_path):
    with served(blocks("bash")[0].splitlines()[0], tmp_path) as (url, _):
        run_as_user(f"voxcpm-triton say Hello. --url {url} -o hello.wav", tmp_path)
        run_as_user(f"voxcpm-triton voices add anna --url {url} --reference-audio hello.wav", tmp_path)
    assert len(list((tmp_path / "voices").glob("*/voice.json"))) == 1


@pytest.mark.server
def test_curl_commands(triton_server, tmp_path):
    run(["bash", "-euo", "pipefail", "-c", localised(blocks("bash")[1], triton_server)], tmp_path, triton_server)
    assert soundfile.info(tmp_path / "curl.wav").frames > 0
    events = (tmp_path / "events.txt").read_text().split("\n\n")
    assert sum(event.startswith("data: {") for event in events) >= 2


@pytest.mark.server
@pytest.mark.parametrize("index", [0, 2])
def test_python_programs(index, triton_server, tmp_path):
    done = run([sys.executable, "-c", localised(blocks("python")[index], triton_server)], tmp_path, triton_server)
    assert done.stdout.strip().endswith("True"), "the last chunk says that it is the last"


def test_python_program_without_triton(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[1]], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(",) 16000\n")
