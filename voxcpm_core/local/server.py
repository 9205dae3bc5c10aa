"""The socket of one engine instance."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

from voxcpm_core.errors import RequestError, invalid_parameter, shown
from voxcpm_core.faults import Log, internal_error
from voxcpm_core.local import messages
from voxcpm_core.local.folder import digest, own_folder

Operation = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Takeover = Callable[[Mapping[str, Any]], Callable[[socket.socket], None]]
MAX_LINE_BYTES = 1 << 20
CLOSE_S = 2.0  # for answers on their way
RETRY_S = 0.5


class LocalServer:
    """Answers JSON lines, `{"op": NAME, ...}`, with `{"result": {...}}` or `{"error": {"code": ..., "message": ...}}`.

    Fields of a request, and of a result, may be bytes; those stand behind the line (`messages.py`).
    Every connection has a thread of its own, on which the operation runs; so operations must be thread-safe, and one
    that blocks holds up its own caller alone. After a `takeovers` operation, which is answered with an empty result,
    the connection is another protocol's: what it returned serves it. Raises OSError when the socket cannot be made.
    """

    def __init__(
        self,
        model: str,
        operations: Mapping[str, Operation],
        server_pid: int,
        log: Log,
        takeovers: Mapping[str, Takeover] | None = None,
    ) -> None:
        self._operations = operations
        self._takeovers = takeovers or {}
        self._log = log
        self._server_pid = server_pid
        # Random, since a model that is loaded anew meets the old instance of the same name.
        self._file_name = f"{digest(model)}-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._closing = False
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._listener = self._listen()
        self._thread = threading.Thread(target=self._accept, name="voxcpm-local", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections and end those that are there; idempotent."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            threads = list(self._connections.values())
            for connection in self._connections:
                _hang_up(connection, socket.SHUT_RD)  # an answer in the making still gets out
        _hang_up(self._listener, socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for thread in threads:
            thread.join(CLOSE_S / len(threads))
        with self._lock:
            for connection in self._connections:
                _hang_up(connection, socket.SHUT_RDWR)
        with contextlib.suppress(OSError), own_folder(self._server_pid, create=False) as folder:
            (folder / self._file_name).unlink(missing_ok=True)

    def _listen(self) -> socket.socket:
        with own_folder(self._server_pid, create=True) as folder:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                hidden = folder / f".{self._file_name}"
                listener.bind(str(hidden))
                hidden.chmod(0o600)
                listener.listen()
                # Under its name it is ready: so a socket that refuses is that of an instance that has ended.
                hidden.rename(folder / self._file_name)
            except BaseException:
                listener.close()
                raise
        return listener

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._closing:
                    return
                internal_error(error, "the local socket", self._log)  # no descriptor is free; it will be
                time.sleep(RETRY_S)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="voxcpm-local", daemon=True)
            with self._lock:
                if self._closing:
                    connection.close()
                    return
                self._connections[connection] = thread
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as lines, contextlib.suppress(OSError):  # the caller has gone
                while line := lines.readline(MAX_LINE_BYTES + 1):
                    answer = self._answer(line, lines)
                    connection.sendall(answer.data)
                    if answer.serve is not None:
                        answer.serve(connection)
                    if answer.is_last:
                        break
        finally:
            with self._lock:
                del self._connections[connection]
                connection.close()

    def _answer(self, line: bytes, lines: BinaryIO) -> _Answer:
        is_last = len(line) > MAX_LINE_BYTES
        try:
            request = _parse(line)
            is_last = True  # unless all that is attached can be read
            request |= messages.read_attached(request, lines)
        except RequestError as error:
            return _Answer(_error(error), is_last)
        try:
            return self._run(request)
        except RequestError as error:
            return _Answer(_error(error), False)
        except Exception as error:
            return _Answer(_error(internal_error(error, "the local socket", self._log)), False)

    def _run(self, request: dict[str, Any]) -> _Answer:
        op = request.get("op", "")
        if op in self._takeovers:
            return _Answer(messages.packed({"result": {}}, {}), True, self._takeovers[op](request))
        if op not in self._operations:
            known = ", ".join(sorted(self._operations))
            raise invalid_parameter(f"op: expected one of {known}, got {shown(request.get('op'))}")
        result, attached = messages.split(self._operations[op](request))
        return _Answer(messages.packed({"result": result}, attached), False)


class _Answer(NamedTuple):
    data: bytes
    is_last: bool  # of this connection
    serve: Callable[[socket.socket], None] | None = None  # what takes it over


def _parse(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise invalid_parameter(f"a line has more than {MAX_LINE_BYTES} bytes")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise invalid_parameter("a line is not JSON") from None
    if not isinstance(request, dict) or not isinstance(request.get("op", ""), str):
        raise invalid_parameter('expected a JSON object with a text "op"')
    return request


def _error(error: RequestError) -> bytes:
    return messages.packed({"error": {"code": error.code.value, "message": str(error)}}, {})


def _hang_up(connection: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # the other side did so first
        connection.shutdown(how)
