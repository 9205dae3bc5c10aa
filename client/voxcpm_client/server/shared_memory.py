"""Shared-memory regions of Python backends: named for their server, so that killed servers leave nothing for long."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

_FOLDER = Path("/dev/shm")
_STEM = "voxcpm_triton_shm_"


def new_prefix() -> str:
    """A prefix for all regions of one server; it names this process, which owns the server."""
    return f"{_STEM}{os.getpid()}_{secrets.token_hex(4)}_"


def sweep(prefix: str) -> None:
    """Remove the regions of a server whose processes have ended."""
    for region in _FOLDER.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def sweep_abandoned() -> None:
    """Remove regions of this user whose owner was killed and that no process has mapped any more."""
    mapped = _mapped_regions()
    for region in _FOLDER.glob(f"{_STEM}*"):
        found = re.match(rf"{_STEM}(\d+)_", region.name)
        if found is None or Path(f"/proc/{found.group(1)}").exists() or region.name in mapped:
            continue
        with contextlib.suppress(FileNotFoundError):  # another server's start swept it
            if region.stat().st_uid == os.getuid():
                region.unlink()


def _mapped_regions() -> set[str]:
    names: set[str] = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            maps = Path("/proc", pid, "maps").read_text()
        except OSError:  # the process ended, or is another user's
            continue
        names.update(re.findall(rf"{_FOLDER}/({_STEM}\S+)", maps))
    return names
