"""Admission: blocks `execute()` while the engine is full, so that Triton's own queue and its policies rule."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from voxcpm_core.errors import RequestError
from voxcpm_core.scheduler import pages_for

CANCEL_POLL_S = 0.2


class Place:
    """A request's place in the line, then in the engine until its stream ends. All calls but `enter` are idempotent."""

    def __init__(self, gate: Gate, num_pages: int) -> None:
        self.num_pages = num_pages
        self.is_waiting = True
        self._gate = gate

    def enter(self, departure: Callable[[], RequestError | None]) -> None:
        """Block until it is this place's turn and there is room in the engine.

        Raises what `departure` answers within `CANCEL_POLL_S`, and the closing error once the gate is closed; then
        the place is given up.
        """
        self._gate.enter(self, departure)

    def admit(self) -> None:
        """The engine took it out of its waiting queue."""
        self._gate.admit(self)

    def wait_again(self) -> None:
        """Another attempt goes into the engine's waiting queue."""
        self._gate.wait_again(self)

    def shrink(self, num_positions: int) -> None:
        """The request takes fewer KV positions than it entered with."""
        self._gate.shrink(self, num_positions)

    def leave(self) -> None:
        """Its stream ended, or it does not stay in the line."""
        self._gate.leave(self)


class Gate:
    """Lets requests through in order: when one can run at once, or when fewer than `max_waiting` wait in the engine."""

    def __init__(self, max_running: int, max_waiting: int, num_pages: int, page_size: int) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._num_pages = num_pages
        self._page_size = page_size
        self._cond = threading.Condition()
        self._inside: set[Place] = set()
        self._before: deque[Place] = deque()  # who waits here, in order
        self._num_looks = 0
        self._closed: RequestError | None = None

    @property
    def num_inside(self) -> int:
        return len(self._inside)

    def line_up(self, num_positions: int) -> Place:
        """A place at the end of the line for a request of so many KV positions. It must `enter` or `leave`."""
        place = Place(self, pages_for(num_positions, self._page_size))
        with self._cond:
            self._before.append(place)
        return place

    def enter(self, place: Place, departure: Callable[[], RequestError | None]) -> None:
        try:
            while not self._try_enter(place):
                error = departure()  # outside the lock: it is a round trip to the server
                if error is not None:
                    raise error
        finally:
            with self._cond:
                self._before.remove(place)
                self._cond.notify_all()

    def look_for_departures(self) -> None:
        """Whoever waits asks its `departure` at once."""
        with self._cond:
            self._num_looks += 1
            self._cond.notify_all()

    def close(self, error: RequestError) -> None:
        """Open the gate for good: whoever waits or comes later gets `error`."""
        with self._cond:
            self._closed = error
            self._cond.notify_all()

    def admit(self, place: Place) -> None:
        with self._cond:
            place.is_waiting = False
            self._cond.notify_all()

    def wait_again(self, place: Place) -> None:
        with self._cond:
            place.is_waiting = True

    def shrink(self, place: Place, num_positions: int) -> None:
        with self._cond:
            place.num_pages = min(place.num_pages, pages_for(num_positions, self._page_size))
            self._cond.notify_all()

    def leave(self, place: Place) -> None:
        with self._cond:
            self._inside.discard(place)
            if place in self._before:
                self._before.remove(place)
            self._cond.notify_all()

    def _try_enter(self, place: Place) -> bool:
        """Wait for room, `CANCEL_POLL_S` at most."""
        with self._cond:
            looks = self._num_looks
            self._cond.wait_for(
                lambda: self._closed is not None or self._may_enter(place) or self._num_looks != looks, CANCEL_POLL_S
            )
            if self._closed is not None:
                raise RequestError(self._closed.code, str(self._closed))
            if not self._may_enter(place):
                return False
            self._inside.add(place)
            return True

    def _may_enter(self, place: Place) -> bool:
        if self._before[0] is not place:
            return False
        pages = sum(other.num_pages for other in self._inside) + place.num_pages
        if len(self._inside) < self._max_running and pages <= self._num_pages:
            return True
        return sum(other.is_waiting for other in self._inside) < self._max_waiting
