"""One run of the worker process, as its parent sees it."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import subprocess
from collections.abc import Mapping
from typing import Any

from voxcpm_core.children.python import start_python
from voxcpm_core.errors import StartupError
from voxcpm_core.threads import in_thread
from voxcpm_core.wire import Wire
from voxcpm_core.worker.messages import STARTUP_ERRORS, NotStarted, Ready, Start, receive, send

MODULE = "voxcpm_core.worker"
SEND_LIMIT_S = 30  # its main thread does nothing but read: a worker that takes nothing for so long is stopped or stuck
_LAST = None  # after it no command is sent


class WorkerProcess:
    """Started at once; `wait_until_ready` before anything else."""

    def __init__(self, start: Start, environ: Mapping[str, str]) -> None:
        try:
            self._process, self._socket = start_python(("-m", MODULE), environ, pass_fds=(start.ring_fd,))
        except OSError as error:
            raise StartupError(f"no process can be started for the engine: {error.strerror}") from None
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_LIMIT_S, 0))
        self._wire = Wire(self._socket)
        self._commands: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._sending = in_thread(self._send_all, "voxcpm-worker-send")
        self.send(start)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> Ready:
        """Block while it loads. Raises StartupError or what the worker said, and ends the process then."""
        try:
            answer = receive(self._wire)
        except (EOFError, OSError):
            ending = self.end()
            raise StartupError(f"the engine process {ending} while it started") from None
        if isinstance(answer, NotStarted):
            self.end()
            raise STARTUP_ERRORS[answer.kind](answer.message)
        assert isinstance(answer, Ready)
        return answer

    def send(self, message: object) -> None:
        """Give a command; never blocks. One to a dead worker is lost, of which `receive` tells."""
        self._commands.put(message)

    def receive(self) -> Any:
        """The next message; raises EOFError or OSError when the process has ended."""
        return receive(self._wire)

    def hang_up(self) -> None:
        """Ask it to end: it does within a second, and `receive` raises."""
        with contextlib.suppress(OSError):  # it may have ended by itself
            self._socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        self._process.kill()

    def end(self, timeout_s: float = 2.0) -> str:
        """Wait for its end, kill it when that takes longer, and close the connection.

        Returns how it ended, to be said of "the engine process".
        """
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self.hang_up()  # a command that is being sent fails now
        self.send(_LAST)
        self._sending.exception()  # waits
        self._wire.close()
        return f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"

    def _send_all(self) -> None:
        """In a thread of its own: a large command, and any to a worker that is stopped, takes its time."""
        try:
            while (command := self._commands.get()) is not _LAST:
                send(self._wire, command)
        finally:
            self._process.kill()  # unless it has ended it takes no commands
