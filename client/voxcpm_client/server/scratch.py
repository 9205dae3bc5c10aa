"""The temporary folder of a server: named for the server's owner, so that killed ones leave nothing for long."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path

_STEM = "voxcpm-server-"


def new_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"{_STEM}{os.getpid()}-")


def sweep_abandoned() -> None:
    """Remove folders of this user whose owner was killed and that stand in no process's command any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_STEM}*"):
        found = re.match(rf"{_STEM}(\d+)-", folder.name)
        if found is None or Path(f"/proc/{found.group(1)}").exists():
            continue
        with contextlib.suppress(FileNotFoundError):  # another server's start swept it
            if folder.lstat().st_uid == os.getuid() and not _is_used(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_used(folder: Path) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # the process ended
            if os.fsencode(folder) in Path("/proc", pid, "cmdline").read_bytes():
                return True
    return False
