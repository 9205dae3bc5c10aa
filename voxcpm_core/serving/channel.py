"""The one owner of a request's response sender."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.faults import Log, internal_error
from voxcpm_core.metrics.request import RequestMeter
from voxcpm_core.serving.meters import Meter
from voxcpm_core.serving.responses import NamedTensor, Responses


class Channel:
    """Sends data responses in order, then exactly one FINAL, and polls for cancellation until then.

    `send`, `finish` and `fail` belong to one thread at a time; `departure`, `is_cancelled` and `closed` to any.
    Triton frees the request at FINAL, and asking it for cancellation afterwards kills the whole server:
    so the lock covers the question, and FINAL first closes the channel under the same lock. Data responses
    need no such care, and a send may block for long; so it never holds the lock.
    """

    def __init__(
        self, sender: Any, responses: Responses, request_id: str, meter: Meter | None = None
    ) -> None:
        self.request_id = request_id
        self.meter: Meter = meter or RequestMeter()
        self.stream_id = secrets.token_hex(16)  # nobody can guess it
        self.when_taken: Callable[[int], None] = lambda num_chunks: None  # told by the last model of an ensemble
        self._sender = sender
        self._responses = responses
        self._lock = threading.Lock()
        self._closed = self._failed = False
        self._received_s = time.monotonic()
        self._deadline_ms: int | None = None
        self._dismissal: RequestError | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def failed(self) -> bool:
        """Whether it was closed by an error."""
        return self._failed

    def is_cancelled(self) -> bool:
        """Whether the caller has gone; False once FINAL is on its way."""
        with self._lock:
            return not self._closed and bool(self._sender.is_cancelled())

    def set_deadline(self, deadline_ms: int) -> None:
        """The request must end so long after it was received."""
        self._deadline_ms = deadline_ms

    def dismiss(self, error: RequestError) -> None:
        """Somebody else than its caller wants the request to end with `error`; `departure` gives it."""
        self._dismissal = error

    def departure(self) -> RequestError | None:
        """Why the request is to end now: its deadline, a dismissal or a caller who has gone; None while it goes on."""
        if self._closed:
            return None
        if self._deadline_ms is not None and time.monotonic() >= self._received_s + self._deadline_ms / 1000:
            return RequestError(ErrorCode.DEADLINE_EXCEEDED, f"not finished within deadline_ms, {self._deadline_ms}")
        if self._dismissal is not None:
            return self._dismissal
        if self.is_cancelled():
            return RequestError(ErrorCode.CANCELLED, "cancelled by the caller")
        return None

    def send(self, tensors: Iterable[NamedTensor]) -> None:
        """Send one data response; nothing happens after FINAL."""
        if not self._closed:
            self._sender.send(self._responses.data(tensors))

    def finish(self, reason: str = "") -> None:
        """End the request: FINAL, alone. `reason` is why the stream ended, for the metrics."""
        if self._close():
            self.meter.finished(reason)
            self._sender.send(flags=self._responses.final_flag)

    def fail(self, error: RequestError) -> bool:
        """End the request with an error and FINAL in one response; False if it had ended before."""
        return self._fail(error.wire(self.request_id), error.code.triton_code, error.code)

    @contextmanager
    def answering(self, log: Log) -> Iterator[None]:
        """Within it every exception becomes the answer."""
        try:
            yield
        except RequestError as error:
            self.refuse(error, log)
        except Exception as error:
            self.refuse(internal_error(error, f"request {self.request_id!r}", log), log)

    def refuse(self, error: RequestError, log: Log) -> None:
        """`fail`, where nobody is left who could be told that even that failed."""
        try:
            self.fail(error)
        except Exception as fault:
            internal_error(fault, f"request {self.request_id!r}", log)

    def fail_with(self, message: str, triton_code: str) -> bool:
        """The same with an error as it goes out, which has been counted where it was made."""
        return self._fail(message, triton_code, None)

    def _fail(self, message: str, triton_code: str, code: ErrorCode | None) -> bool:
        if not self._close(failed=True):
            return False
        if code is not None:
            self.meter.failed(code)
        self._sender.send(self._responses.error(message, triton_code), flags=self._responses.final_flag)
        return True

    def _close(self, failed: bool = False) -> bool:
        with self._lock:
            was_open = not self._closed
            if was_open:
                self._failed, self._closed = failed, True
        return was_open


class UnaryChannel(Channel):
    """Of a model that is not decoupled: its one data response leaves with FINAL."""

    def send(self, tensors: Iterable[NamedTensor]) -> None:
        self._held = list(tensors)

    def finish(self, reason: str = "") -> None:
        if self._close():
            self._sender.send(self._responses.data(self._held), flags=self._responses.final_flag)
