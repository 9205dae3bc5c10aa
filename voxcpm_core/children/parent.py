"""A child process ends with its parent."""

from __future__ import annotations

import os
import select
import threading

_POLL_MS = 250
PARENT_GONE = 0  # exit status


def end_with_parent(descriptor: int) -> None:
    """From now on end this process when its parent does or closes its end of a socket, whatever other threads are at.

    `descriptor` is this end. It alone does not tell: a process that the parent forked may hold the other end, too.
    """
    threading.Thread(target=_watch, args=(descriptor, os.getppid()), name="voxcpm-parent", daemon=True).start()


def _watch(descriptor: int, parent_pid: int) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is always reported
    while os.getppid() == parent_pid and not poll.poll(_POLL_MS):
        pass
    os._exit(PARENT_GONE)
