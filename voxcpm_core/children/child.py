"""One child process, as its parent sees it."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from voxcpm_core.children.python import start_python
from voxcpm_core.errors import RequestError

Departure = Callable[[], RequestError | None]  # why the caller no longer waits; None while it does

POLL_S = 0.2  # how often a caller is asked
START_LIMIT_S = 60.0


class ChildDied(Exception):
    """The process ended while it worked on a message."""


class ChildGone(ChildDied):
    """The process had ended before it took the message."""


class ChildTooSlow(Exception):
    """A message was not answered in time."""


class Child:
    """A process that runs `serve`. One thread at a time asks; after an exception of `ask` only `dispose` is allowed."""

    def __init__(self, command: Sequence[str], limit_s: float) -> None:
        """Start `python *command DESCRIPTOR`, which has `limit_s` for each message. Does not wait for it."""
        self._process, end = start_python(
            command,
            {**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # else one for each core, unused
            output=subprocess.DEVNULL,  # libmpg123 and friends comment on every damaged file
        )
        # A child that was stopped does not read, and the message would be sent for ever.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(limit_s) + 1, 0))
        self._connection = Connection(end.detach())
        self._limit_s = limit_s
        self._is_ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, message: bytes, departure: Departure) -> bytes:
        """The answer to a message. Raises ChildDied, ChildGone, ChildTooSlow, or what `departure` gives.

        RuntimeError: the process ended before it was ready.
        """
        if not self._is_ready:
            try:
                self._receive(START_LIMIT_S, departure)
            except (ChildDied, ChildTooSlow):
                raise RuntimeError("the child process could not be started") from None
            self._is_ready = True
        try:
            self._connection.send_bytes(message)
        except BlockingIOError:
            raise ChildTooSlow from None
        except OSError:
            raise ChildGone from None
        return self._receive(self._limit_s, departure)

    def kill(self) -> None:
        """End the process; may be called while another thread asks, which then gets ChildDied."""
        self._process.kill()

    def dispose(self) -> None:
        """Kill, reap, and close what belongs to it."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _receive(self, limit_s: float, departure: Departure) -> bytes:
        end_s = time.monotonic() + limit_s
        try:
            while not self._connection.poll(POLL_S):
                if time.monotonic() >= end_s:
                    raise ChildTooSlow
                error = departure()
                if error is not None:
                    raise error
            return self._connection.recv_bytes()
        except (EOFError, ConnectionError):
            raise ChildDied from None
