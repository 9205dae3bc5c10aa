"""One thread that notices callers who have gone."""

from __future__ import annotations

import threading
import time
from typing import Protocol

RUNNING_POLL_S = 0.05
WAITING_POLLS = 4  # a waiting stream is asked at every fourth poll


class Watched(Protocol):
    """A stream whose caller may leave."""

    @property
    def ended(self) -> bool: ...

    @property
    def is_waiting(self) -> bool: ...

    def cancel_if_gone(self) -> bool:
        """Ask Triton; True if the caller has gone and the stream was told so. Must not raise."""
        ...


class CancelPoller:
    """Asks running streams every 50 ms and waiting ones every 200 ms, until they end or were cancelled."""

    def __init__(self) -> None:
        self._cond = threading.Condition()
        self._watched: set[Watched] = set()
        self._closing = False
        self._is_urgent = False
        self._thread = threading.Thread(target=self._run, name="voxcpm-cancel", daemon=True)
        self._thread.start()

    def watch(self, stream: Watched) -> None:
        with self._cond:
            self._watched.add(stream)
            self._cond.notify()

    def poll_now(self) -> None:
        """Ask all streams at once."""
        with self._cond:
            self._is_urgent = True
            self._cond.notify()

    def close(self) -> None:
        with self._cond:
            self._closing = True
            self._cond.notify()
        self._thread.join()

    def _run(self) -> None:
        num_polls = 0
        due_s = time.monotonic()
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._closing or self._watched)
                # Counted from poll to poll: with many streams the questions themselves take milliseconds.
                due_s = max(due_s + RUNNING_POLL_S, time.monotonic())
                self._cond.wait_for(lambda: self._closing or self._is_urgent, due_s - time.monotonic())
                if self._closing:
                    return
                if asks_all := self._is_urgent:
                    self._is_urgent, due_s = False, time.monotonic()
                streams = tuple(self._watched)
            num_polls += 1
            asks_all = asks_all or num_polls % WAITING_POLLS == 0
            done = [stream for stream in streams if self._is_done(stream, asks_all)]
            with self._cond:
                self._watched.difference_update(done)

    def _is_done(self, stream: Watched, asks_all: bool) -> bool:
        if stream.ended:
            return True
        if stream.is_waiting and not asks_all:
            return False
        return stream.cancel_if_gone()
