"""Folders that servers on several machines share: names of files in them, and what goes wrong with them."""

from __future__ import annotations

import errno
import hashlib
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from voxcpm_core.errors import ErrorCode, RequestError, shown

TEMPORARY_PREFIX = ".tmp-"
ABANDONED_S = 600.0  # what is temporary and so much older than something new belongs to nobody any more
_GONE = frozenset({errno.ENOENT, errno.ESTALE})  # ESTALE: removed by another machine


def file_name(name: str) -> str:
    """What stands for a name given by a client: the same characters whatever it is, so that none leads elsewhere."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def is_gone(error: OSError) -> bool:
    """Whether a file was removed while it was read."""
    return error.errno in _GONE


def refused(kind: str, name: str, error: OSError) -> RequestError:
    """The INTERNAL of a file system that refused the `kind` of that name; it names no path."""
    reason = error.strerror or type(error).__name__
    return RequestError(ErrorCode.INTERNAL, f"the file system refused the {kind} {shown(name)}: {reason}")


def temporary_path(folder: Path) -> Path:
    """Where something is written, or put out of the way, that nobody else is to see."""
    return folder / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def sweep(folder: Path, newest: Path) -> None:
    """Remove what killed servers left under temporary names; `newest` is one that was made just now.

    Ages are by the file system's clock, which may not be this machine's. Others may sweep and write meanwhile.
    """
    now_s = newest.stat().st_mtime
    for left in folder.glob(f"{TEMPORARY_PREFIX}*"):
        with suppress(OSError):  # gone by now, or another user's
            if now_s - left.lstat().st_mtime > ABANDONED_S:
                if left.is_dir():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink()
