"""How a child process finds the interpreter and this package."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import voxcpm_core

_PACKAGE_ROOT = Path(voxcpm_core.__file__).resolve().parents[1]


def interpreter() -> str:
    """The path of Python; one that is embedded, as in Triton's stub, may not know its own."""
    return sys.executable or shutil.which("python3") or "python3"


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """With this very package on the path, and nothing that lies in the working directory instead."""
    paths = [str(_PACKAGE_ROOT), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
