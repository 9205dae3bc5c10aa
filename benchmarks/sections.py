"""Sections of checks side by side, each in a process of its own: compiling takes most of their time, on one core."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def run_apart(module: str, names: Sequence[str], folder: Path, limit_s: float) -> list[str]:
    """`python -m MODULE --only NAME` of each, all at once. Those that failed, or did not end in that time.

    What each printed, kept in `folder` meanwhile, is printed when it and those before it have ended.
    """
    start_s = time.monotonic()
    outputs = [folder / f"{name}.log" for name in names]
    processes = []
    for name, output in zip(names, outputs, strict=True):
        with output.open("w") as file:
            command = [sys.executable, "-u", "-m", module, "--only", name]
            processes.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
    failed = []
    for name, output, process in zip(names, outputs, processes, strict=True):
        try:
            has_failed = process.wait(max(0.0, limit_s - (time.monotonic() - start_s))) != 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            has_failed = True
        print(output.read_text(errors="replace"), end="")
        if has_failed:
            failed.append(name)
            print(f"FAIL {name}: exit status {process.returncode}", flush=True)
    return failed
