"""One run of the worker process, as its parent sees it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

from voxcpm_core.children.python import environment, interpreter
from voxcpm_core.errors import StartupError
from voxcpm_core.worker.messages import STARTUP_ERRORS, NotStarted, Ready, Start, receive, send
from voxcpm_core.worker.wire import Wire

MODULE = "voxcpm_core.worker"


class WorkerProcess:
    """Started at once; `wait_until_ready` before anything else."""

    def __init__(self, start: Start, environ: Mapping[str, str]) -> None:
        self._socket, child_end = socket.socketpair()
        self._wire = Wire(self._socket)
        self._send_lock = threading.Lock()
        with child_end:
            fd = child_end.fileno()
            self._process = subprocess.Popen(
                [interpreter(), "-m", MODULE, str(fd)],
                pass_fds=(fd, start.ring_fd), stdin=subprocess.DEVNULL, env=environment(environ),
            )
        self.send(start)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> Ready:
        """Block while it loads. Raises StartupError or what the worker said, and ends the process then."""
        try:
            answer = receive(self._wire)
        except (EOFError, OSError):
            status = self.end()
            raise StartupError(f"the engine process {_how_ended(status)} while it started") from None
        if isinstance(answer, NotStarted):
            self.end()
            raise STARTUP_ERRORS[answer.kind](answer.message)
        assert isinstance(answer, Ready)
        return answer

    def send(self, message: object) -> None:
        """Give a command. One to a dead worker is lost, of which `receive` tells."""
        with self._send_lock:
            try:
                send(self._wire, message)
            except OSError:
                return

    def receive(self) -> Any:
        """The next message; raises EOFError or OSError when the process has ended."""
        return receive(self._wire)

    def hang_up(self) -> None:
        """Ask it to end: it does within a second, and `receive` raises."""
        with contextlib.suppress(OSError):  # it may have ended by itself
            self._socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        self._process.kill()

    def end(self, timeout_s: float = 2.0) -> int:
        """Wait for its end, kill it when that takes longer, and close the connection. Returns the exit status."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self.hang_up()  # whoever is blocked in `send` fails now
        with self._send_lock:
            self._wire.close()
        return status

    def describe_end(self) -> str:
        return _how_ended(self._process.returncode)


def _how_ended(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
