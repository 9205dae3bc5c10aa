"""A Triton model that gives one answer to a request, from a thread: so one instance serves many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter
from voxcpm_core.serving.channel import UnaryChannel
from voxcpm_core.serving.parameters import reject_unknown, request_id_of, utf8_or_none
from voxcpm_core.serving.responses import NamedTensor, TritonResponses
from voxcpm_core.serving.tensors import InputTensors

NUM_THREADS = 16
MAX_INSIDE = 64  # requests that are answered or wait for a thread; what they bring is held in memory
RETRY_AFTER_MS = 1000

Work = Callable[[], list[NamedTensor]]


class UnaryModel:
    """What Triton calls.

    `read` takes the inputs, which are gone when `execute` returns, and gives the work that makes the outputs. Both may
    raise RequestError.
    """

    def __init__(self, pb_utils: Any, read: Callable[[InputTensors], Work]) -> None:
        self._read = read
        self._logger = pb_utils.Logger
        self._responses = TritonResponses(pb_utils)
        self._executor = ThreadPoolExecutor(NUM_THREADS, "voxcpm-unary")
        self._room = threading.BoundedSemaphore(MAX_INSIDE)

    def execute(self, requests: Iterable[Any]) -> None:
        """Answer each request, most of them later; never raises and never blocks."""
        for request in requests:
            given_id = utf8_or_none(request.request_id)
            channel = UnaryChannel(
                request.get_response_sender(), self._responses, request_id_of(given_id)
            )
            with channel.answering(self._logger.log_error):
                if given_id is None:
                    raise invalid_parameter("the request id is not valid UTF-8")
                self._accept(request, channel)

    def close(self) -> None:
        """Wait for what is being answered, and end the threads."""
        self._executor.shutdown()

    def _accept(self, request: Any, channel: UnaryChannel) -> None:
        parameters = utf8_or_none(request.parameters)
        if parameters is None:
            raise invalid_parameter("a request parameter is not valid UTF-8")
        reject_unknown(parameters, frozenset())
        if not self._room.acquire(blocking=False):
            raise RequestError(
                ErrorCode.OVERLOADED, f"{MAX_INSIDE} requests are inside, retry after {RETRY_AFTER_MS} ms"
            )
        try:
            work = self._read(InputTensors(request.inputs()))
            self._executor.submit(self._run, work, channel)
        except BaseException:
            self._room.release()
            raise

    def _run(self, work: Work, channel: UnaryChannel) -> None:
        try:
            with channel.answering(self._logger.log_error):
                channel.send(work())
                channel.finish()
        finally:
            self._room.release()
