"""How a Python process is started that runs this very package and is connected to this one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import voxcpm_core

_PACKAGE_ROOT = Path(voxcpm_core.__file__).resolve().parents[1]


def start_python(
    command: Iterable[str], environ: Mapping[str, str], *,
    pass_fds: Iterable[int] = (), output: int | IO[bytes] | None = None,
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `python *command DESCRIPTOR`, whose last argument is its end of a socket; returns it and this end.

    It works in another directory than this one, so paths that it is given are to be absolute.
    `output`: where standard output and standard error go, as for Popen; None is where this process's go.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [_interpreter(), *command, str(theirs.fileno())],
            pass_fds=(theirs.fileno(), *pass_fds), env=_environment(environ), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output,
            start_new_session=True,  # Ctrl-C at this process's terminal is for this process, which ends the new one
            cwd=_PACKAGE_ROOT,  # Python imports from there first
        )
    return process, ours


def _interpreter() -> str:
    """One that is embedded, as in Triton's stub, may not know its own path."""
    return sys.executable or shutil.which("python3") or "python3"


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """With this very package on the path, and nothing that lies in the working directory instead.

    Where this process ignores PYTHONPATH and the like, as Triton's stub does, so does the new one: it must not find
    other packages.
    """
    if sys.flags.ignore_environment:
        environ = {name: value for name, value in environ.items() if not name.startswith("PYTHON")}
    own = {"PYTHONNOUSERSITE": "1"} if sys.flags.no_user_site else {}
    others = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [str(_PACKAGE_ROOT), *map(os.path.abspath, others)]
    return {**environ, **own, "PYTHONPATH": os.pathsep.join(paths)}
