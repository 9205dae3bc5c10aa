"""All that docs/performance.md tells, on this machine: `python -m benchmarks.everything FOLDER [--only NAME...]`.

One process after the other, each with a time limit, so that one that fails or hangs costs itself alone. Logs and
figures go to FOLDER; what has succeeded there is not measured again, so a run that was interrupted goes on. The peer, a
tritonserver and perf_analyzer are measured where they are installed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import as_line, describe_machine

CHECKPOINT = "VoxCPM2"  # in the folder: full size, random weights
MAKE_CHECKPOINT = (
    "import sys, pathlib; from voxcpm_core.checkpoint.random_init import make_checkpoint; "
    "make_checkpoint(pathlib.Path(sys.argv[1]), size='2', device='cuda')"
)


class Job(NamedTuple):
    """A run of a module, `-c` and a program, or the like."""

    name: str
    arguments: tuple[str, ...]  # of Python; {out} is its file of figures, {folder} the folder
    limit_s: float


def module(name: str, *arguments: str, limit_s: float = 300.0, title: str = "") -> Job:
    return Job(title or name, ("-m", f"benchmarks.{name}", *arguments), limit_s)


JOBS = (
    module("gpu_check", limit_s=480),
    module("step", "--json", "{out}"),
    module("engine", "--sizes", "2", "--json", "{out}", title="engine-2"),
    module("engine", "--sizes", "1.5", "0.5", "--json", "{out}", title="engine-others"),
    module("vae", "--json", "{out}"),
    module("vae_encoder"),
    module("kernels", "--json", "{out}"),
    module("gpu_loras", "--size", "2"),
    module("voices", "--json", "{out}"),
    Job("checkpoint", ("-c", MAKE_CHECKPOINT, "{folder}/" + CHECKPOINT), 120),
    module("worker_cost", "{folder}/" + CHECKPOINT, "cuda:0"),
    module("serve", "--model", "{folder}/" + CHECKPOINT, "--json", "{out}"),
    module("reloads", "--json", "{out}"),
    module("compare_nano", "--models", "2", "1.5", "0.5", "--json", "{out}", limit_s=900),
    module("compare_nano", "--set", "weights=fp8", "--json", "{out}", limit_s=400, title="compare_nano-fp8"),
    module("fp8", "--device", "cuda:0", "--json", "{out}"),
)


def run(job: Job, folder: Path) -> str:
    """How it went: "ok", or why not."""
    out = str(folder / f"{job.name}.json")
    command = [sys.executable, *(each.replace("{out}", out).replace("{folder}", str(folder)) for each in job.arguments)]
    start_s = time.monotonic()
    with (folder / f"{job.name}.log").open("wb") as log, subprocess.Popen(
        command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            status = process.wait(job.limit_s)
            told = "ok" if status == 0 else f"exit status {status}"
        except subprocess.TimeoutExpired:
            told = f"no end after {job.limit_s:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what it started, which holds the card's memory
    if told == "ok":
        (folder / f"{job.name}.done").touch()
    return f"{told}, {time.monotonic() - start_s:.0f} s"


def run_all(jobs: Sequence[Job], folder: Path) -> dict[str, str]:
    """Those that have not been done; what is told of each."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {}
    for job in jobs:
        if (folder / f"{job.name}.done").exists():
            told[job.name] = "done before"
        else:
            told[job.name] = run(job, folder)
        print(f"{job.name}: {told[job.name]}", flush=True)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=[job.name for job in JOBS], metavar="NAME")
    arguments = parser.parse_args()
    print(as_line(describe_machine()), flush=True)
    told = run_all([job for job in JOBS if not arguments.only or job.name in arguments.only], arguments.folder)
    return int(any(not each.startswith(("ok", "done")) for each in told.values()))


if __name__ == "__main__":
    raise SystemExit(main())
