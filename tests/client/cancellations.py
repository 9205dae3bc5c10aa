"""What is left of streams that were cancelled: the count of the model `double`, and threads of this process."""

from __future__ import annotations

import threading
import time

from voxcpm_client import Client

_LIMIT_S = 5.0


def num_cancelled(client: Client) -> int:
    return int(client.synthesize("count cancelled").audio)


def wait_for_cancelled(client: Client, count: int) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while num_cancelled(client) < count:
        assert time.monotonic() < deadline_s, "the server saw no cancellation"
        time.sleep(0.05)


def wait_for_threads(count: int) -> None:
    """Wait until no more than these run; a closed channel's thread ends a moment after the call returns."""
    deadline_s = time.monotonic() + _LIMIT_S
    while threading.active_count() > count:
        assert time.monotonic() < deadline_s, threading.enumerate()
        time.sleep(0.05)
