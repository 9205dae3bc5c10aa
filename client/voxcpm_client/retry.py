"""When a request that failed is sent again, and how long to wait before."""

from __future__ import annotations

import random
import time

from voxcpm_client.errors import Draining, NotReady, Overloaded, ServerUnavailable, UnknownModel, VoxError

RETRIED = (ServerUnavailable, NotReady, Overloaded, Draining)
_FIRST_DELAY_S = 0.25
_MAX_DELAY_S = 4.0


class Attempts:
    """The attempts at one request: at most 1 + `retries`, all within `timeout_s`, waits included."""

    def __init__(self, retries: int, timeout_s: float | None) -> None:
        self._left = retries
        self._backoff_s = _FIRST_DELAY_S
        self._deadline_s = None if timeout_s is None else time.monotonic() + timeout_s

    def remaining_s(self) -> float | None:
        """The time that is left for the next attempt; None when there is no bound."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - time.monotonic())

    def delay_s(self, error: VoxError, num_chunks: int) -> float | None:
        """How long to wait before the request is sent again; None: give up and raise `error`.

        Never after a first chunk: the caller has heard it, and another attempt would say it again, in other words of
        noise when the seed was drawn.
        """
        if num_chunks or self._left == 0 or not isinstance(error, RETRIED) or isinstance(error, UnknownModel):
            return None
        delay_s = max(self._backoff_s * random.uniform(0.5, 1.0), (error.retry_after_ms or 0) / 1000)
        remaining_s = self.remaining_s()
        if remaining_s is not None and delay_s >= remaining_s:
            return None
        self._left -= 1
        self._backoff_s = min(2 * self._backoff_s, _MAX_DELAY_S)
        return delay_s
