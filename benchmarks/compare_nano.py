"""This engine beside its peer, nano-vllm-voxcpm: `python -m benchmarks.compare_nano [--models 2 1.5 0.5]`.

Both run in processes of their own, one after the other, on the same full-size checkpoint of random weights, under the
same program: so many streams at once, all of the same number of patches. Where the peer is not installed, only this
engine is measured, and the report says so. It needs flash-attn; without librosa, which it uses for wav prompts alone,
it gets an empty module of that name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare_checkpoint import ensure_checkpoint
from benchmarks.machine import as_line, describe_machine

STREAMS = (1, 8, 16, 17, 32, 33, 64)
NUM_PATCHES = 50
TIMEOUT_S = 420  # of an engine: one that hangs must not cost the other's figures
OURS, PEER = "ours", "nano"
_PEER_PACKAGE = "nano-vllm-voxcpm"
_COLUMNS = "{:>7} {:>6} {:>9} {:>15} {:>9} {:>7} {:>9} {:>7}"


def why_no_peer() -> str | None:
    """What is missing of the peer; None when it can be started."""
    for module, package in (("nanovllm_voxcpm", _PEER_PACKAGE), ("flash_attn", "flash-attn")):
        if importlib.util.find_spec(module) is None:
            return f"{package} is not installed"
    return None


def run_engine(engine: str, folder: Path, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Its start time and rows, measured in a process of its own. Raises RuntimeError where that fails."""
    out = scratch / f"{engine}.json"
    environment = dict(os.environ)
    if engine == PEER and importlib.util.find_spec("librosa") is None:
        (scratch / "stubs").mkdir(exist_ok=True)
        (scratch / "stubs" / "librosa.py").touch()
        environment["PYTHONPATH"] = os.pathsep.join([str(scratch / "stubs"), environment.get("PYTHONPATH", "")])
    command = [
        sys.executable, "-m", "benchmarks.compare_engine", engine, str(folder), arguments.device, str(out),
        "--streams", *map(str, arguments.streams), "--patches", str(arguments.patches),
        "--set", *(arguments.set if engine == OURS else ()),
    ]  # fmt: skip
    _run(command, environment)
    told: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return told


def _run(command: Sequence[str], environment: dict[str, str]) -> None:
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            status = process.wait(TIMEOUT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with what it started, which holds the card's memory
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"no end after {TIMEOUT_S} s") from None
            raise
    if status:
        raise RuntimeError(f"exit status {status}; its words stand above")


def compare(name: str, folder: Path, arguments: argparse.Namespace, peer_reason: str | None) -> dict[str, Any]:
    """Both engines on one checkpoint; the peer's part is the reason where there is none."""
    with tempfile.TemporaryDirectory(prefix="voxcpm-compare-") as scratch:
        measured: dict[str, Any] = {OURS: run_engine(OURS, folder, arguments, Path(scratch)), PEER: peer_reason}
        if peer_reason is None:
            try:
                measured[PEER] = run_engine(PEER, folder, arguments, Path(scratch))
            except RuntimeError as error:
                measured[PEER] = f"{_PEER_PACKAGE} failed: {error}"
    print(table(name, measured), flush=True)
    return measured


def table(name: str, measured: dict[str, Any]) -> str:
    """Rows of both engines for each number of streams, and how many times the peer's audio-s/s ours is."""
    lines = [f"\n{name}"]
    peer = measured[PEER]
    if isinstance(peer, str):
        lines.append(f"ONLY THIS ENGINE, nothing to compare with: {peer}")
    else:
        lines.append(f"ready after: ours {measured[OURS]['ready_s']:.1f} s, nano {peer['ready_s']:.1f} s")
    lines.append(_COLUMNS.format("streams", "", "step ms", "least-most", "TTFA p50", "RTF", "audio-s/s", "ratio"))
    peer_rows = {} if isinstance(peer, str) else {row["streams"]: row for row in peer["rows"]}
    for row in measured[OURS]["rows"]:
        other = peer_rows.get(row["streams"])
        ratio = "" if other is None else f"{row['audio_s_per_s'] / other['audio_s_per_s']:.2f}"
        lines.append(_line(OURS, row, ratio))
        if other is not None:
            lines.append(_line(PEER, other, ""))
    return "\n".join(lines)


def _line(engine: str, row: dict[str, Any], ratio: str) -> str:
    spread = f"{min(row['step_ms_of_runs']):.2f}-{max(row['step_ms_of_runs']):.2f}"
    return _COLUMNS.format(
        row["streams"], engine, f"{row['step_ms']:.2f}", spread, f"{row['ttfa_p50_ms']:.1f}", f"{row['rtf']:.4f}",
        f"{row['audio_s_per_s']:.1f}", ratio,
    )  # fmt: skip


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["2"], help="releases (0.5, 1.5, 2), or tiny for a try-out")
    parser.add_argument("--folder", type=Path, help="where checkpoints are made, and kept; default: for this run")
    parser.add_argument("--device", default="cuda:0", help="the peer runs on CUDA alone")
    parser.add_argument("--streams", type=int, nargs="+", default=list(STREAMS))
    parser.add_argument("--patches", type=int, default=NUM_PATCHES)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of this engine")
    parser.add_argument("--json", type=Path, help="file for all figures")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    arguments = parse(given)
    machine = describe_machine(("torch", "triton", "numpy", _PEER_PACKAGE, "flash-attn"))
    print(as_line(machine))
    print(f"{arguments.patches} patches a request, 10 timesteps, cfg 2, audio on the host; step: wall time / patches")
    peer_reason = why_no_peer()
    if not arguments.device.startswith("cuda"):
        peer_reason = "it runs on CUDA alone"
    report: dict[str, Any] = {"machine": machine, "patches": arguments.patches, "set": arguments.set, "models": {}}
    with tempfile.TemporaryDirectory(prefix="voxcpm-compare-") as scratch:
        for name in arguments.models:
            folder = ensure_checkpoint((arguments.folder or Path(scratch)) / name, name)
            report["models"][name] = compare(name, folder, arguments, peer_reason)
            if arguments.json is not None:  # after each: a later one may fail
                arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
