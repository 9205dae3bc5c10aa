"""An instance that is to end: it takes no more requests and finishes those that it has."""

from __future__ import annotations

import threading
from collections.abc import Callable

from voxcpm_core.errors import RequestError, draining


class Drain:
    """Thread-safe. There is no way back but to load the model again."""

    def __init__(self, refuse: Callable[[RequestError], None], dismiss: Callable[[RequestError], None]) -> None:
        """`refuse` answers whoever has no place yet or comes later, `dismiss` whoever is there."""
        self._refuse = refuse
        self._dismiss = dismiss
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self.has_begun = False

    def begin(self, deadline_ms: int | None) -> None:
        """Refuse from now on. What is not finished within `deadline_ms` ends with DRAINING; None sets no limit.

        The deadline of a later call takes the place of an earlier one's.
        """
        with self._lock:
            if self._is_closed:
                return
            self.has_begun = True
            self._stop_timer()
            if deadline_ms is not None:
                end = draining(f"not finished within the {deadline_ms} ms that the server had left to end")
                self._timer = threading.Timer(deadline_ms / 1000, self._dismiss, [end])
                self._timer.name, self._timer.daemon = "voxcpm-drain", True
                self._timer.start()
        self._refuse(draining("the server takes no more requests"))

    def require_not_begun(self) -> None:
        """Raises DRAINING."""
        if self.has_begun:
            raise draining("the server takes no more requests")

    def refuse(self, error: RequestError) -> None:
        """Take no more requests, for another reason; a deadline that was set holds."""
        self.has_begun = True
        self._refuse(error)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            timer = self._stop_timer()
        if timer is not None:
            timer.join()

    def _stop_timer(self) -> threading.Timer | None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        return timer
