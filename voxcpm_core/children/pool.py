"""A few children of one kind, each of which works on one message at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from voxcpm_core.children.answers import unpack
from voxcpm_core.children.child import POLL_S, Child, ChildDied, ChildGone, Departure
from voxcpm_core.errors import shutting_down

CLOSE_LIMIT_S = 5.0


def stays() -> None:
    """The departure of a caller who waits for as long as it takes."""


class ChildPool:
    """Thread-safe. Callers are served in the order in which they came; children start when they are needed."""

    def __init__(self, command: Sequence[str], num_children: int, limit_s: float) -> None:
        """Children are `python *command`, at most `num_children`, with `limit_s` seconds for each message."""
        self._command = tuple(command)
        self._num_children = num_children
        self._limit_s = limit_s
        self._cond = threading.Condition()
        self._line: deque[object] = deque()  # callers who wait for a child
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._is_closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the children that live."""
        with self._cond:
            return tuple(child.pid for child in (*self._idle, *self._busy) if child.is_alive)

    def warm_up(self) -> None:
        """Start one child ahead of need, without waiting for it."""
        with self._cond:
            self._idle.append(Child(self._command, self._limit_s))

    def call(self, message: bytes, departure: Departure = stays) -> memoryview:
        """Have a child answer.

        Raises the RequestError of the child, ChildDied, ChildTooSlow, what `departure` gives (asked every 0.2 s;
        a child at work is then killed), or NOT_READY once closed. RuntimeError: no child can be started.
        """
        try:
            return unpack(self._ask(message, departure))
        except ChildGone:  # while it was idle: not for what is in the message
            return unpack(self._ask(message, departure))

    def close(self) -> None:
        """Kill the children; who waits or comes later gets NOT_READY."""
        with self._cond:
            self._is_closed = True
            self._cond.notify_all()
            for child in self._busy:
                child.kill()
            while self._idle:
                self._idle.pop().dispose()
            self._cond.wait_for(lambda: not self._busy, CLOSE_LIMIT_S)

    def _ask(self, message: bytes, departure: Departure) -> bytes:
        child = self._take(departure)
        is_sound = False
        try:
            answer = child.ask(message, departure)
            is_sound = True
            return answer
        except (ChildDied, RuntimeError):
            if self._is_closed:
                raise shutting_down() from None
            raise
        finally:
            self._give_back(child, is_sound)

    def _take(self, departure: Departure) -> Child:
        ticket = object()
        with self._cond:
            self._line.append(ticket)
        try:
            while True:
                with self._cond:
                    if self._cond.wait_for(lambda: self._is_closed or self._is_next(ticket), POLL_S):
                        return self._reuse_or_start()
                error = departure()  # outside the lock: it is a round trip to the server
                if error is not None:
                    raise error
        finally:
            with self._cond:
                self._line.remove(ticket)
                self._cond.notify_all()

    def _is_next(self, ticket: object) -> bool:
        return self._line[0] is ticket and len(self._busy) < self._num_children

    def _reuse_or_start(self) -> Child:
        if self._is_closed:
            raise shutting_down()
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                break
            child.dispose()
        else:
            child = Child(self._command, self._limit_s)
        self._busy.add(child)
        return child

    def _give_back(self, child: Child, is_sound: bool) -> None:
        if not is_sound:
            child.dispose()
        with self._cond:
            self._busy.discard(child)
            if is_sound and self._is_closed:
                child.dispose()
            elif is_sound:
                self._idle.append(child)
            self._cond.notify_all()
