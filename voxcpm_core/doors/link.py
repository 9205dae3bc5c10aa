"""A door's connection to the instance with the engine."""

from __future__ import annotations

import socket
import threading
from typing import Protocol

from voxcpm_core.doors import messages
from voxcpm_core.doors.messages import Answered, Asked, Gone, Taken
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.wire import Wire


class Asker(Protocol):
    """Who waits for the answers to one request. Neither call blocks."""

    def was_taken(self) -> None: ...

    def answer(self, answer: Answered | RequestError) -> None: ...


class Link:
    """Sends requests, and gives the answers of all of them to their askers, from the thread in `serve`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._wire = Wire(connection)
        self._send_lock = threading.Lock()
        self._lock = threading.Lock()
        self._askers: dict[int, Asker] = {}
        self._is_lost = False

    def ask(self, asked: Asked, asker: Asker) -> None:
        """Raises INTERNAL when the connection is lost; when it is lost later, the asker is told."""
        with self._lock:
            if self._is_lost:
                raise _lost()
            self._askers[asked.number] = asker
        self._send(asked)

    @property
    def num_open(self) -> int:
        """Requests that are not answered."""
        with self._lock:
            return len(self._askers)

    def leave(self, number: int) -> None:
        """The caller of a request has gone."""
        self._send(Gone(number))

    def serve(self) -> None:
        """Until the other side has gone or `close`."""
        try:
            while True:
                self._take(messages.receive(self._wire))
        except (EOFError, OSError):
            pass
        with self._lock:
            self._is_lost = True
            askers, self._askers = list(self._askers.values()), {}
        for asker in askers:
            asker.answer(_lost())
            asker.was_taken()
        self._connection.close()

    def close(self) -> None:
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed, or the other side was first
            return

    def _take(self, message: Answered | Taken) -> None:
        with self._lock:
            asker = self._askers.get(message.number)
            if isinstance(message, Answered) and message.is_final:
                self._askers.pop(message.number, None)
        if asker is None:
            return
        if isinstance(message, Taken):
            asker.was_taken()
        else:
            asker.answer(message)
            if message.is_final:
                asker.was_taken()

    def _send(self, message: object) -> None:
        try:
            with self._send_lock:
                messages.send(self._wire, message)
        except OSError:  # `serve` tells the askers
            return


def _lost() -> RequestError:
    return RequestError(ErrorCode.INTERNAL, "the instance with the engine ended")
