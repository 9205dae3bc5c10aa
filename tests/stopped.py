"""Processes that do nothing for a while, so that what they were asked to do takes as long as a test wants."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Stop processes, which may be killed meanwhile; they go on at the end."""
    held = tuple(pids)
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield held
    finally:
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def kill(pids: Iterable[int]) -> None:
    """Kill processes that are there."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
