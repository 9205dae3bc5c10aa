"""Futures of the audio that a worker encodes."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from voxcpm_core.errors import RequestError
from voxcpm_core.types import FloatArray
from voxcpm_core.worker.messages import Encoded


class Encodings:
    """Each future gets a result or a RequestError."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, Future[FloatArray]] = {}

    def add(self, encode_id: int, future: Future[FloatArray]) -> None:
        with self._lock:
            self._futures[encode_id] = future

    def deliver(self, message: Encoded) -> None:
        with self._lock:
            future = self._futures.pop(message.encode_id)
        if message.error is not None:
            future.set_exception(RequestError(*message.error))
        else:
            assert message.latents is not None
            future.set_result(message.latents)

    def fail_all(self, error: RequestError) -> None:
        with self._lock:
            futures, self._futures = self._futures, {}
        for future in futures.values():
            future.set_exception(error)
