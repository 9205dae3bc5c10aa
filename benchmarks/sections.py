"""Sections of checks side by side, each in a process of its own: compiling takes most of their time, on one core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def run_apart(module: str, names: Sequence[str], folder: Path, limit_s: float) -> list[str]:
    """`python -m MODULE --only NAME` of each, all at once. Those that failed, or did not end in that time.

    What each printed, kept in `folder` meanwhile, is printed when it and those before it have ended. Who terminates
    this process ends them, too.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    start_s = time.monotonic()
    outputs = [folder / f"{name}.log" for name in names]
    processes: list[subprocess.Popen[bytes]] = []
    failed = []
    try:
        for name, output in zip(names, outputs, strict=True):
            command = [sys.executable, "-u", "-m", module, "--only", name]
            with output.open("w") as file:
                processes.append(
                    subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
                )
        for name, output, process in zip(names, outputs, processes, strict=True):
            reason = _failure(process, limit_s, start_s)
            print(output.read_text(errors="replace").rstrip("\n"))
            if reason:
                failed.append(name)
                print(f"FAIL {name}: {reason}", flush=True)
    finally:
        for process in processes:
            _kill(process)
        signal.signal(signal.SIGTERM, before)
    return failed


def _failure(process: subprocess.Popen[bytes], limit_s: float, start_s: float) -> str:
    """Empty where it ended well."""
    try:
        status = process.wait(max(0.0, limit_s - (time.monotonic() - start_s)))
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"did not end in {limit_s:.0f} s"
    return f"exit status {status}" if status else ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
