"""Programs that see a small file system somewhere, where Linux lets this user have mount namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2"'


def run_with_tmpfs(folder: Path, size: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python program for which `folder` is empty and holds no more than `size`. Skips the test where none can be."""
    alone = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "sh", "-c"]
    probe = [*alone, MOUNT, "sh", size, str(folder)]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no mount namespaces here (unshare --mount)")
    command = f'{MOUNT} && shift 2 && exec "$@"'
    return subprocess.run(
        [*alone, command, "sh", size, str(folder), sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=240,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'client'}"},
    )  # fmt: skip
