"""One request's part in the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from voxcpm_core.errors import ErrorCode
from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.board import Record, record_nothing


class RequestMeter:
    """Measures from when it is made. One thread at a time tells it, as the request goes on."""

    def __init__(
        self, record: Record = record_nothing, on_end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._record = record
        self._on_end = on_end
        self._clock = clock
        self._received_s = clock()
        self._was_admitted = False
        self._sent_s: float | None = None  # the latest chunk
        self._audio_s = 0.0
        record(catalog.RECEIVED)

    def admitted(self) -> None:
        """It has a slot. A further attempt's is not counted."""
        if not self._was_admitted:
            self._was_admitted = True
            self._record(catalog.ADMITTED)
            self._record(catalog.QUEUE_WAIT, self._clock() - self._received_s)

    def sent(self, audio_s: float, is_streamed: bool) -> None:
        """A chunk has left, with so much audio in it."""
        now_s = self._clock()
        if self._sent_s is not None:
            self._record(catalog.GAP, now_s - self._sent_s)
        if audio_s > 0:
            if self._audio_s == 0 and is_streamed:
                self._record(catalog.TTFA, now_s - self._received_s)
            self._record(catalog.AUDIO, audio_s)
        self._sent_s = now_s
        self._audio_s += audio_s

    def finished(self, reason: str) -> None:
        """All of it was sent."""
        self._record(catalog.FINISHED, label_value=reason)
        if self._sent_s is not None:
            duration_s = self._sent_s - self._received_s
            self._record(catalog.DURATION, duration_s)
            if self._audio_s > 0:
                self._record(catalog.REAL_TIME, duration_s / self._audio_s)
        self._on_end()

    def failed(self, code: ErrorCode) -> None:
        """It ended with an error."""
        if code is ErrorCode.CANCELLED:
            self._record(catalog.CANCELLED)
        elif self._was_admitted or code in catalog.FAILURES:
            self._record(catalog.FAILED, label_value=code.value)
        else:
            self._record(catalog.REJECTED, label_value=code.value)
        self._on_end()
