"""How much memory the C library sets aside for threads."""

from __future__ import annotations

import contextlib
import ctypes

NUM_ARENAS = 2
_M_ARENA_MAX = -8  # of malloc.h


def bound_arenas() -> None:
    """Share memory between threads that come from now on; nothing happens where the C library is not glibc.

    Else dozens of them, which mostly wait for each other anyway, each get an arena of their own, and what one has
    freed no other one uses: a process grows for thousands of requests.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, NUM_ARENAS)
