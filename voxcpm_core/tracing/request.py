"""One request's spans: all of it, and inside it waiting, the way to the first audio, and the rest of the stream."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from voxcpm_core.errors import ErrorCode

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

REQUEST, QUEUE, FIRST_AUDIO, STREAM = "voxcpm.request", "voxcpm.queue", "voxcpm.first_audio", "voxcpm.stream"


class RequestSpans:
    """A `Meter`. Spans last by the monotonic clock, and stand where the wall clock was when the request came.

    A request can get its slot while or after its end is told: by the engine, which has not heard of a cancel yet.
    """

    def __init__(self, tracer: Tracer, parent: Context, attributes: dict[str, str]) -> None:
        self._tracer = tracer
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._whole = tracer.start_span(REQUEST, parent, attributes=attributes, start_time=self._now_ns())
        self._part = self._begin(QUEUE)
        self._was_admitted = False
        self._has_ended = False
        self._lock = threading.Lock()  # of what runs
        self._num_chunks = 0
        self._audio_s = 0.0

    def admitted(self) -> None:
        if not self._was_admitted:
            self._was_admitted = True
            self._go_on(FIRST_AUDIO)

    def sent(self, audio_s: float, is_streamed: bool) -> None:
        if audio_s > 0 and self._audio_s == 0:
            self._go_on(STREAM)
        self._num_chunks += 1
        self._audio_s += audio_s

    def finished(self, reason: str) -> None:
        self._whole.set_attribute("voxcpm.finish_reason", reason)
        self._end()

    def failed(self, code: ErrorCode) -> None:
        from opentelemetry.trace import StatusCode

        self._whole.set_attribute("voxcpm.error_code", code.value)
        if code is not ErrorCode.CANCELLED:
            self._whole.set_status(StatusCode.ERROR, code.value)
        self._end()

    def _end(self) -> None:
        self._whole.set_attributes({"voxcpm.num_chunks": self._num_chunks, "voxcpm.audio_s": self._audio_s})
        with self._lock:
            self._has_ended = True
            now_ns = self._now_ns()
            self._part.end(now_ns)
            self._whole.end(now_ns)

    def _go_on(self, name: str) -> None:
        with self._lock:
            if not self._has_ended:
                self._part.end(self._now_ns())
                self._part = self._begin(name)

    def _begin(self, name: str) -> Span:
        from opentelemetry.trace import set_span_in_context

        return self._tracer.start_span(name, set_span_in_context(self._whole), start_time=self._now_ns())

    def _now_ns(self) -> int:
        return time.monotonic_ns() + self._offset_ns
