"""What is said of an unexpected exception: its type and place, never its text, which may hold a caller's."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from voxcpm_core.errors import ErrorCode, RequestError

Log = Callable[[str], None]


def place_of(error: BaseException) -> str:
    """Type and call path of an exception, innermost first; nothing of its text."""
    frames = traceback.extract_tb(error.__traceback__)
    path = " < ".join(f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__} at {path}"


def internal_error(error: Exception, subject: str, log: Log) -> RequestError:
    """Log what `error` happened to and where; returns the INTERNAL error that the caller gets."""
    log(f"{subject}: {place_of(error)}")
    return RequestError(ErrorCode.INTERNAL, "an internal fault ended the request")
