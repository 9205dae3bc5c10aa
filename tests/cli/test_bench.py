"""`bench` against real servers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT
from tests.client.cancellations import num_cancelled, wait_for_cancelled
from voxcpm_client import Client
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server

Cli = Callable[..., subprocess.CompletedProcess[bytes]]
FAST = ("--max-length", "4", "--timesteps", "2")


def report_of(file: Path) -> dict:
    return json.loads(file.read_text(encoding="utf-8"))


def texts_file(folder: Path, *texts: str) -> Path:
    file = folder / "texts.txt"
    file.write_text("\n".join(texts), encoding="utf-8")
    return file


def documented(option: str) -> list[str]:
    """The arguments of the command with that option in docs/operating.md."""
    section = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").split("## Measuring a server\n", 1)[1]
    (block,) = re.findall(r"^```bash\n(.*?)^```", section.split("\n## ", 1)[0], re.M | re.S)
    assert len(block.splitlines()) == 4
    (command,) = (line for line in block.splitlines() if option in line)
    program, *arguments = shlex.split(command)
    assert program == "voxcpm-triton"
    return arguments


@pytest.fixture
def run_documented(cli_here: Cli, triton_server: TritonServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs the command with an option of docs/operating.md in a new folder; returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(option: str, *further: str) -> str:
        done = cli_here(*documented(option), "--url", triton_server.grpc_url, *further)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    return run


def test_documented_closed_loops(run_documented: Callable[..., str], tmp_path: Path) -> None:
    """Two rows, by two processes."""
    lines = run_documented("--clients 1 4", "--processes", "2").splitlines()
    report = report_of(tmp_path / "closed.json")
    assert list(report) == ["schema", "server", "url", "model", "num_texts", "seed", "options", "stopped", "rows"]
    assert report["server"].startswith("triton 2.")
    assert [row["load"]["clients"] for row in report["rows"]] == [1, 4]
    for row in report["rows"]:
        clients = row["load"]["clients"]
        assert sum(line.split()[:4] == [str(clients), f"client{'s'[:clients > 1]}", "8", "8"] for line in lines) == 1
        assert (row["n"], row["ok"], row["errors"], row["unfinished"]) == (8, 8, {}, 0)
        assert 0 < row["ttfa_ms"]["p50"] <= row["ttfa_ms"]["p99"] <= row["ttfa_ms"]["largest"]
        assert 0 < row["audio_s"] <= 8 * 6 * 0.16 + 1e-9, "at most six patches of 160 ms each"
        assert row["audio_s_per_s"] > 0
        assert row["gap_ms"]["largest"] == pytest.approx(max(each["largest_gap_ms"] or 0 for each in row["requests"]))
    alone = report["rows"][0]["requests"]
    for before, after in pairwise(alone):
        assert before["ended_s"] <= after["sent_s"], "one client has one request at a time"


@pytest.mark.parametrize(
    ("option", "file", "load"),
    [
        ("--rate", "open.json", {"kind": "open", "rate_per_s": 8.0}),
        ("--ramp", "ramp.json", {"kind": "ramp", "from_per_s": 2.0, "to_per_s": 8.0, "over_s": 2.0}),
    ],
)
def test_documented_arrivals(
    run_documented: Callable[..., str], tmp_path: Path, option: str, file: str, load: dict
) -> None:
    run_documented(option)
    (row,) = report_of(tmp_path / file)["rows"]
    assert row["load"] == load
    assert row["ok"] == row["n"] > 1
    assert 0 <= row["lag_ms"]["p50"] <= row["lag_ms"]["largest"]
    assert all(each["sent_s"] >= each["due_s"] > 0 for each in row["requests"])


def test_the_documented_picture(run_documented: Callable[..., str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed (the extra `picture`)")
    run_documented("--picture")
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")


def test_a_voice_and_an_exact_length(cli_here: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    voice, file = tmp_path / "voice.wav", tmp_path / "report.json"
    voice.write_bytes(Client(url=triton_server.grpc_url).synthesize("Hi.", format="wav", seed=1, max_length=4).audio)
    load = ("--clients", "2", "--requests", "4", "--reference-audio", voice, "--json", file)
    exact = ("--ignore-stop", "--max-length", "7", "--timesteps", "2")
    done = cli_here("bench", "--url", triton_server.grpc_url, *load, *exact)
    assert done.returncode == 0, done.stderr
    report = report_of(file)
    assert report["options"]["reference_audio"] == f"{voice.stat().st_size} bytes"
    assert [each["audio_s"] for each in report["rows"][0]["requests"]] == pytest.approx([7 * 0.16] * 4)


def test_errors_by_code_and_the_exit_status(cli_here: Cli, double_server: TritonServer, tmp_path: Path) -> None:
    texts = texts_file(tmp_path, "error: [INVALID_TEXT] request r: blank", "late error: [INTERNAL] request r: a fault",
                       "no last", "a tone")  # fmt: skip
    file = tmp_path / "report.json"
    load = ("--clients", "1", "--requests", "8", "--warm-up", "0", "--texts", texts, "--json", file)
    load = (*load, "--processes", "2")  # errors come from another process
    done = cli_here("bench", "--url", double_server.grpc_url, "--model", "double", *load)
    assert done.returncode == os.EX_DATAERR, "that of the first error"
    (line,) = done.stderr.splitlines()
    assert b"6 of 8 requests failed; the first: [INVALID_TEXT] request r: blank" in line
    (row,) = report_of(file)["rows"]
    assert row["errors"] == {"INTERNAL": 2, "INVALID_TEXT": 2, "STREAM_BROKEN": 2}
    assert row["ok"] == 2


def test_a_player_that_would_run_dry(cli_here: Cli, double_server: TritonServer, tmp_path: Path) -> None:
    """The second quarter of a second comes a second late."""
    file = tmp_path / "report.json"
    load = ("--clients", "2", "--requests", "2", "--warm-up", "0", "--texts", texts_file(tmp_path, "slowly"))
    done = cli_here("bench", "--url", double_server.grpc_url, "--model", "double", *load, "--json", file)
    assert done.returncode == 0, done.stderr
    (row,) = report_of(file)["rows"]
    assert row["underruns"] == 2
    assert 900 < row["gap_ms"]["p50"] < 2000
    assert row["rtf"]["p50"] > 3


def interrupt_later(handler_before: object) -> None:
    """Ctrl-C for the command that runs in this process, a second after it is prepared for one."""
    while signal.getsignal(signal.SIGINT) is handler_before:
        time.sleep(0.05)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupt_keeps_what_was_measured(
    cli_here: Cli, double_server: TritonServer, tmp_path: Path, processes: int
) -> None:
    client = Client(url=double_server.grpc_url, model="double")
    before = num_cancelled(client)
    file = tmp_path / "report.json"
    load = ("--clients", "2", "--requests", "4", "--warm-up", "0", "--texts", texts_file(tmp_path, "tone", "silence"))
    given = ("--json", file, "--processes", str(processes))
    interrupt = threading.Thread(target=interrupt_later, args=(signal.getsignal(signal.SIGINT),), daemon=True)
    interrupt.start()
    done = cli_here("bench", "--url", double_server.grpc_url, "--model", "double", *load, *given)
    interrupt.join()
    assert done.returncode == 130
    report = report_of(file)
    assert report["stopped"]
    (row,) = report["rows"]
    assert row["errors"] == {}
    assert row["unfinished"] > 0
    assert b"under way" in done.stdout
    assert b"Traceback" not in done.stderr
    wait_for_cancelled(client, before + row["unfinished"])


def test_failures_before_anything_is_measured(cli_here: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    there = ("--url", triton_server.grpc_url)
    for arguments, words, status in (
        (("--clients", "1", "--url", "127.0.0.1:9"), b"no answer from a Triton server", os.EX_UNAVAILABLE),
        (("--clients", "1", "--url", "http://localhost"), b"gRPC address", os.EX_USAGE),
        (("--clients", "1", "--model", "nobody", *there), b"unknown model", os.EX_CONFIG),
        (("--clients", "1", "--cfg-value", "50", *there), b"[INVALID_PARAMETER]", os.EX_DATAERR),
        (("--clients", "1", "--texts", tmp_path / "none.txt", *there), b"none.txt", 1),
        (("--clients", "1", "--json", tmp_path / "no" / "r.json", *there), b"cannot write into folder", 1),
        (("--clients", "1", "--reference-audio", tmp_path / "none.wav", *there), b"none.wav", 1),
    ):
        done = cli_here("bench", *arguments)
        (line,) = done.stderr.splitlines()
        assert words in line
        assert (done.returncode, done.stdout) == (status, b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give one of --clients, --rate and --ramp"),
        (("--clients", "1", "--rate", "2"), "give one of"),
        (("--clients", "0"), "expected at least 1, got 0"),
        (("--clients", "1", "many"), "got 'many'"),
        (("--clients", "1", "--begin-over", "-1"), "expected seconds from 0, got -1"),
        (("--rate", "-1"), "requests per second, got -1"),
        (("--ramp", "1:2"), "expected FROM:TO:SECONDS"),
        (("--ramp", "1:2:3", "4"), "one value"),
        (("--clients", "1", "--requests", "0"), "requests: expected at least 1"),
        (("--clients", "1", "--duration", "0"), "duration: expected a time above 0"),
        (("--clients", "1", "--ignore-stop"), "needs --max-length"),
    ],
)
def test_command_lines_that_are_wrong(cli_here: Cli, arguments: tuple[str, ...], words: str) -> None:
    done = cli_here("bench", *arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.decode().replace("\u2502", " ").split())


def test_a_picture_without_matplotlib(cli_here: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = cli_here("bench", "--clients", "1", "--picture", tmp_path / "load.png")
    assert done.returncode == 1
    assert b"--picture needs matplotlib, which is not installed: pip install 'voxcpm-triton[picture]'" in done.stderr


def test_a_duration_ends_a_row(cli_here: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    begin_s = time.monotonic()
    load = ("--clients", "2", "--begin-over", "0.5", "--duration", "0.6", "--json", file)
    assert cli_here("bench", "--url", triton_server.grpc_url, *load, *FAST).returncode == 0
    assert time.monotonic() - begin_s < 10
    (row,) = report_of(file)["rows"]
    assert row["n"] == row["ok"] > 1
    assert all(each["sent_s"] <= 0.6 for each in row["requests"])
    first_s = [next(each["sent_s"] for each in row["requests"] if each["client"] == number) for number in (0, 1)]
    assert first_s[0] < first_s[1]
    assert first_s[1] >= 0.2, "half a second for two clients"
