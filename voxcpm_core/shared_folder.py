"""Folders that servers on several machines share: names of files in them, and what goes wrong with them."""

from __future__ import annotations

import errno
import hashlib

from voxcpm_core.errors import ErrorCode, RequestError, shown

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
