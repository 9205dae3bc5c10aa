"""Finding the engine instances of a model on this host, and asking them."""

from __future__ import annotations

import json
import socket
from collections.abc import Container
from types import TracebackType
from typing import Any

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.local import messages
from voxcpm_core.local.folder import digest, own_folder


class LocalClient:
    """A connection to one instance, for one thread. Raises OSError where the instance has ended or is silent."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.name = name  # of the socket: every load of an instance has another
        self._connection = connection
        self._lines = connection.makefile("rb")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The result of an operation, in which fields may be bytes; raises RequestError with its code, or OSError."""
        self._connection.sendall(messages.packed(*messages.split({"op": op, **fields})))
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the instance has ended")
        answer = json.loads(line)
        attached = messages.read_attached(answer, self._lines)
        if "error" in answer:
            raise RequestError(ErrorCode(answer["error"]["code"]), answer["error"]["message"])
        return {**answer["result"], **attached}

    def wait_up_to(self, timeout_s: float) -> None:
        """For each answer from now on."""
        self._connection.settimeout(timeout_s)

    def detach(self) -> socket.socket:
        """The connection, without a time limit: for what speaks another protocol from here on."""
        detached = self._connection.dup()
        detached.settimeout(None)
        return detached

    def close(self) -> None:
        self._lines.close()
        self._connection.close()

    def __enter__(self) -> LocalClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect_instances(
    model: str | None, server_pid: int, timeout_s: float = 5.0, but: Container[str] = ()
) -> list[LocalClient]:
    """A connection to every living instance of `model` in the tritonserver with that process id; none is no error.

    None is every model that has an engine. `timeout_s` bounds each answer; sockets named in `but` are left out. Raises
    ProcessLookupError without such a process, and PermissionError where the folder is not this user's alone.
    """
    clients: list[LocalClient] = []
    try:
        with own_folder(server_pid, create=False) as folder:
            for path in sorted(folder.glob("[!.]*-*" if model is None else f"{digest(model)}-*")):
                if path.name in but:
                    continue
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                connection.settimeout(timeout_s)
                try:
                    connection.connect(str(path))
                except (ConnectionRefusedError, FileNotFoundError):
                    connection.close()
                    path.unlink(missing_ok=True)  # its process was killed
                else:
                    clients.append(LocalClient(connection, path.name))
    except FileNotFoundError:  # no instance has been started yet
        return []
    return clients
