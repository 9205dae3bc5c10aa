"""What is said of an unexpected exception: its type and place, never its text, which may hold a caller's."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from voxcpm_core.errors import ErrorCode, RequestError

Log = Callable[[str], None]


def internal_error(error: Exception, request_id: str, log: Log) -> RequestError:
    """Log where `error` came from; returns the INTERNAL error that the caller gets."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in reversed(frames))
    log(f"request {request_id!r}: {type(error).__name__} at {places}")
    return RequestError(ErrorCode.INTERNAL, "an internal fault ended the request")
