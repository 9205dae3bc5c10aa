"""Files that get their name when they are whole."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from pathlib import Path

_ABANDONED_S = 60.0  # untouched; a process of that id may live on another host that has the folder, too


def partial_beside(path: Path) -> Path:
    """Where this process writes what becomes `path` in the end. What a killed process wrote there is removed."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        found = re.fullmatch(r"\.(\d+)\.partial", left.name.removeprefix(f".{path.name}"))
        with contextlib.suppress(OSError):
            is_old = time.time() - left.stat().st_mtime > _ABANDONED_S
            if found is not None and is_old and not Path(f"/proc/{found[1]}").exists():
                left.unlink()
    return path.with_name(f".{path.name}.{os.getpid()}.partial")
