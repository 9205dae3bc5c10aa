"""One request from its place in the engine to its FINAL."""

from __future__ import annotations

from collections.abc import Callable

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.faults import Log, internal_error
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.chunker import Chunker
from voxcpm_core.serving.gate import Place
from voxcpm_core.serving.responses import Responses, StreamInfo
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.types import Admitted, Failed, Patch, StreamEvent


class OutputStream:
    """The engine's event sink for one request; its responses leave from a sender thread, in order."""

    def __init__(
        self, channel: Channel, place: Place, chunker: Chunker, responses: Responses, info: StreamInfo,
        pool: SenderPool, log: Log,
    ) -> None:
        self._channel = channel
        self._place = place
        self._chunker = chunker
        self._responses = responses
        self._info = info
        self._log = log
        self._lane = pool.lane(self._handle)
        self._cancel: Callable[[], None] | None = None
        self._departure: RequestError | None = None  # once set, what is queued need not be sent
        self._num_patches = 0

    @property
    def ended(self) -> bool:
        return self._channel.closed

    @property
    def is_waiting(self) -> bool:
        return self._place.is_waiting

    def sink(self, event: StreamEvent) -> None:
        """Take an event from the engine's thread: quick, and the gate learns of it at once."""
        if isinstance(event, Admitted):
            self._place.admit()
            return
        if isinstance(event, Failed) or event.finish_reason is not None:
            self._place.leave()
        self._lane.put(event)

    def submitted(self, cancel: Callable[[], None]) -> None:
        """The engine has it; `cancel` ends it there, at once when the answer has failed already."""
        self._cancel = cancel
        if self._channel.closed:
            cancel()

    def cancel_if_gone(self) -> bool:
        try:
            self._departure = self._channel.departure()
            if self._departure is None:
                return False
        except Exception as fault:  # the poller serves all streams and must outlive one that cannot be asked
            internal_error(fault, self._channel.request_id, self._log)
            return True
        self._cancel_in_engine()
        return True

    def _handle(self, event: Patch | Failed) -> None:
        try:
            if isinstance(event, Failed):
                # The engine knows that a stream was cancelled, but not why.
                was_cancelled = event.error.code is ErrorCode.CANCELLED and self._departure is not None
                self._fail(self._departure if was_cancelled else event.error)
            else:
                self._send(event)
        except Exception as error:
            self._cancel_in_engine()
            self._fail(internal_error(error, self._channel.request_id, self._log))

    def _send(self, patch: Patch) -> None:
        if self._channel.closed:
            return
        self._num_patches += 1
        if self._departure is not None:
            if patch.finish_reason is not None:
                self._fail(self._departure)
            return
        chunk = self._chunker.add(patch)
        if chunk is None:
            return
        self._channel.send(self._responses.data(chunk, self._info))
        if chunk.is_last:
            self._channel.finish()

    def _fail(self, error: RequestError) -> None:
        try:
            if self._channel.fail(error):
                self._log(f"request {self._channel.request_id!r}: {error.code.value} after {self._num_patches} patches")
        except Exception as fault:
            internal_error(fault, self._channel.request_id, self._log)

    def _cancel_in_engine(self) -> None:
        if self._cancel is not None:
            self._cancel()
