"""Exit statuses of the command line: those of sysexits.h where one fits."""

from __future__ import annotations

import os

from voxcpm_client import errors

FAILURE = 1  # what has no status of its own, as a file that cannot be written or a server that does not start

_STATUSES: tuple[tuple[int, tuple[type[Exception], ...]], ...] = (  # the first that fits
    (os.EX_NOPERM, (errors.Forbidden,)),
    (os.EX_USAGE, (errors.InvalidUrl,)),
    (os.EX_DATAERR, (errors.InvalidRequest,)),
    (os.EX_CONFIG, (errors.UnknownModel,)),
    (os.EX_OSERR, (errors.NoPlayer,)),
    (os.EX_UNAVAILABLE, (errors.ServerUnavailable,)),
    (os.EX_TEMPFAIL, (errors.Overloaded, errors.NotReady, errors.Draining, errors.DeadlineExceeded, errors.GapTimeout)),
    (FAILURE, (errors.Cancelled,)),
    (os.EX_SOFTWARE, (errors.VoxError,)),
)


def exit_status(error: Exception) -> int:
    """The status with which a command ends on `error`."""
    return next((status for status, kinds in _STATUSES if isinstance(error, kinds)), FAILURE)
