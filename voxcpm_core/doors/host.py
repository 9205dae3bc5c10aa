"""The engine instance's side of its doors, and of other models whose requests it takes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from voxcpm_core.doors import messages
from voxcpm_core.doors.messages import Answered, Asked, Gone, Taken
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.doors.remote import RemoteRequest, RemoteResponses
from voxcpm_core.errors import invalid_parameter
from voxcpm_core.serving.adapter import Adapter
from voxcpm_core.wire import Wire


class Doors:
    """Hands what comes through the doors to the adapter, as if Triton had."""

    def __init__(self, place: InstancePlace, adapter: Adapter) -> None:
        self._place = place
        self._adapter = adapter
        self._lock = threading.Lock()
        self._claimed: set[int] = set()

    def claim(self, claim: Mapping[str, Any]) -> Callable[[socket.socket], None]:
        """What serves the connection of the door that says this of itself, until it ends.

        Raises INVALID_PARAMETER for a door of another engine, also of the same model loaded anew: that one's place
        is taken as long as its own door lives.
        """
        index = claim.get("index")
        with self._lock:
            if not self._place.is_shared_with(claim) or index in self._claimed:
                raise invalid_parameter("this is not a door of this instance")
            assert isinstance(index, int)
            self._claimed.add(index)

        def serve(connection: socket.socket) -> None:
            try:
                _Connection(connection, self._adapter, self._execute).serve()
            finally:
                with self._lock:
                    self._claimed.discard(index)

        return serve

    def _execute(self, request: RemoteRequest, responses: RemoteResponses) -> None:
        self._adapter.execute([request], responses)


class Guests:
    """Takes the requests of models that do not block while theirs wait at the gate, in the order in which they come.

    Triton does not count these requests as this model's, so nothing but `finish` waits for them when it is unloaded.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._cond = threading.Condition()
        self._num_open = 0

    def welcome(self, request: Mapping[str, Any]) -> Callable[[socket.socket], None]:
        """What serves the connection of one such model."""
        return lambda connection: _Connection(connection, self._adapter, self._execute).serve()

    def finish(self) -> None:
        """Wait until all have been answered. The adapter must refuse new ones by then."""
        with self._cond:
            self._cond.wait_for(lambda: self._num_open == 0)

    def _execute(self, request: RemoteRequest, responses: RemoteResponses) -> None:
        with self._cond:
            self._num_open += 1
        request.when_ended(self._ended)
        self._adapter.execute_apart(request, responses)

    def _ended(self) -> None:
        with self._cond:
            self._num_open -= 1
            self._cond.notify_all()


class _Connection:
    """One door, or another model."""

    def __init__(
        self, connection: socket.socket, adapter: Adapter, execute: Callable[[RemoteRequest, RemoteResponses], None]
    ) -> None:
        self._wire = Wire(connection)
        self._adapter = adapter
        self._execute = execute
        self._responses = RemoteResponses()
        self._send_lock = threading.Lock()
        self._requests: dict[int, RemoteRequest] = {}
        self._executor = ThreadPoolExecutor(1, "voxcpm-door")  # one, so that their order is kept

    def serve(self) -> None:
        """Take requests until the other side goes; then all its callers have."""
        try:
            while True:
                message = messages.receive(self._wire)
                if isinstance(message, Asked):
                    self._start(message)
                elif isinstance(message, Gone) and (request := self._requests.get(message.number)):
                    request.leave()
                    self._adapter.look_for_departures()
        except (EOFError, OSError):
            pass
        finally:
            for request in list(self._requests.values()):
                request.leave()
            self._adapter.look_for_departures()
            self._executor.shutdown()

    def _start(self, asked: Asked) -> None:
        request = self._requests[asked.number] = RemoteRequest(asked, self._deliver)

        def execute() -> None:
            self._execute(request, self._responses)
            self._send(Taken(asked.number))

        self._executor.submit(execute)  # it blocks at the gate

    def _deliver(self, answer: Answered) -> None:
        if answer.is_final:
            self._requests.pop(answer.number, None)
        self._send(answer)

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError), self._send_lock:  # a door that has gone needs no answers
            messages.send(self._wire, message)
