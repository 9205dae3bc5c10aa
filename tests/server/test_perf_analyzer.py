"""The load test of docs/operating.md, as it stands there, and what its profile exports tell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.perf_export import Heard, Load, complete_export, read_export, report
from voxcpm_client.server import TritonServer

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
SECONDS_PER_PATCH = 0.16
REQUESTED_PATCHES = (4, 8, 6)  # of benchmarks/perf_requests.json, in turn


def commands() -> list[str]:
    """The command lines of the section "Load testing"."""
    section = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").split("## Load testing\n", 1)[1]
    (block,) = re.findall(r"^```bash\n(.*?)^```", section.split("\n## ", 1)[0], re.M | re.S)
    return block.replace("\\\n", "").splitlines()


def run(command: str, server: TritonServer, folder: Path) -> str:
    """Its standard output; it must succeed without a word of an error."""
    if not shutil.which("perf_analyzer", path=PATH):
        pytest.skip("perf_analyzer is not installed: python -m benchmarks.install_perf_analyzer (Linux on x86-64)")
    command = command.replace("localhost:8001", server.grpc_url).replace("benchmarks/", f"{ROOT}/benchmarks/")
    environment = os.environ | {"PATH": PATH, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" not in (done.stdout + done.stderr).lower()
    return done.stdout


def exported(command: str, count: int, server: TritonServer, export: Path) -> list[Load]:
    """What one of the commands exports."""

    def run_whole() -> None:
        assert f"Request count: {count}\n" in run(command, server, export.parent)

    return complete_export(run_whole, export)


@pytest.mark.server
def test_the_documented_commands(triton_server: TritonServer, tmp_path: Path):
    *loads, summary = commands()
    for command, clients in zip(loads, (1, 8, 32), strict=True):
        count = int(re.findall(r"--request-count (\d+)", command)[0])
        (load,) = exported(command, count, triton_server, tmp_path / f"load-{clients}.json")
        assert load.clients == clients
        assert len(load.requests) == count
        heard_s = sum(request.audio_s for request in load.requests)
        most_s = SECONDS_PER_PATCH * max(REQUESTED_PATCHES) * count
        assert SECONDS_PER_PATCH * min(REQUESTED_PATCHES) * count <= heard_s <= most_s
        assert all(0 < request.ttfa_ms <= 1000 * request.rtf * request.audio_s for request in load.requests)
    printed = run(summary, triton_server, tmp_path)
    assert re.findall(r"^(\d+) clients, (\d+) requests", printed, re.M) == [("1", "6"), ("8", "24"), ("32", "64")]
    assert printed.count("TTFA: p50") == printed.count("RTF: p50") == 3


@pytest.mark.server
def test_the_ensemble(triton_server: TritonServer, tmp_path: Path):
    command = commands()[1].replace("-m voxcpm ", "-m voxcpm_mp3 ").replace("--request-count 24", "--request-count 8")
    assert "Request count: 8\n" in run(command, triton_server, tmp_path)


@pytest.mark.soak
@pytest.mark.server
def test_tritons_queue_admits_what_the_window_cannot(start_server: Callable[..., TritonServer], tmp_path: Path):
    server = start_server(VOXCPM_MAX_RUNNING="4", VOXCPM_MAX_WAITING="2")
    crowd = commands()[2].replace("--request-count 64", "--request-count 32")
    assert "Request count: 32\n" in run(crowd, server, tmp_path)


def test_a_profile_export_with_stray_memory(tmp_path: Path):
    """Raw audio, latents that were never sent, and the outputs of the empty FINAL are all in it."""
    numbers = '"num_samples":7680,"sample_rate":48000,"vae_context":'
    chunk = f'{{"is_last":false,"latents":%s,{numbers},"audio":"\\u00e\xff,\\"latents\\":"}}'
    strings = '"stream_id":"\\u00e\xff,\\"bitrate\\":","audio":""'
    stray = f'{{"is_last":{{}},"latents":,"bitrate":-nan,"num_samples":-7,"sample_rate":0,{strings}}}'
    export = (
        '{"experiments":[{"experiment":{"mode":"concurrency","value":2},"requests":[{"timestamp":1000000,'
        '"response_timestamps":[61000000,161000000,162000000],"response_outputs":'
        f"[{chunk % ''},{chunk % '-7.6e+35'},{stray}]}}]}}]}}"
    )
    file = tmp_path / "export.json"
    file.write_text(export, encoding="latin-1")
    (load,) = read_export(file)
    assert load == Load(2, (Heard(ttfa_ms=60.0, gaps_ms=(100.0,), audio_s=0.32, rtf=0.5),))
    assert report(load).splitlines() == [
        "2 clients, 1 requests, 0.3 s",
        "  TTFA: p50 60.0 p90 60.0 p99 60.0 ms",
        "  gap: p50 100.0 p90 100.0 p99 100.0 ms",
        "  RTF: p50 0.500 p90 0.500 p99 0.500",
    ]
