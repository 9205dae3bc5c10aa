"""What a measurement was made on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path


def describe_machine(packages: Sequence[str] = ("torch", "triton", "numpy")) -> dict[str, str]:
    """Card and driver, processor and cores, Python and `packages`; what is not there is "none"."""
    return {
        "card": _card(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
    }


def as_line(machine: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in machine.items())


def _card() -> str:
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "none"
    return "; ".join(done.stdout.split("\n")).strip("; ")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
