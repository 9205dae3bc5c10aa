"""Ending blocking calls from another thread than the one that waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class Cancellation:
    """Cancels every call that runs within it, now or later. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._calls: set[Cancellable] = set()

    @property
    def is_cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        with self._lock:
            self._event.set()
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def wait(self, duration_s: float) -> bool:
        """Sleep, for as long as nothing is cancelled; returns whether it was."""
        return self._event.wait(duration_s)

    @contextmanager
    def covering(self, call: Cancellable) -> Iterator[None]:
        """Have `call` cancelled together with the others; in the end it is cancelled anyway."""
        with self._lock:
            self._calls.add(call)
            is_late = self._event.is_set()
        try:
            if is_late:
                call.cancel()
            yield
        finally:
            call.cancel()
            with self._lock:
                self._calls.discard(call)
