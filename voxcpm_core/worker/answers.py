"""Futures of what a worker was asked besides speech."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

from voxcpm_core.errors import RequestError
from voxcpm_core.worker.messages import Answer


class Answers:
    """Each future gets a result or a RequestError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, Future[Any]] = {}

    def add(self, question_id: int, future: Future[Any]) -> None:
        with self._lock:
            self._futures[question_id] = future

    def deliver(self, message: Answer) -> None:
        with self._lock:
            future = self._futures.pop(message.question_id)
        if message.error is not None:
            future.set_exception(RequestError(*message.error))
        else:
            future.set_result(message.value)

    def fail_all(self, error: RequestError) -> None:
        with self._lock:
            futures, self._futures = self._futures, {}
        for future in futures.values():
            future.set_exception(error)
