"""One request from its place in the engine to its FINAL."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.faults import Log, internal_error
from voxcpm_core.handle import EngineHandle
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.chunker import Chunk
from voxcpm_core.serving.gate import Place
from voxcpm_core.serving.output import Output
from voxcpm_core.serving.responses import chunk_tensors
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.types import Admitted, EngineRequest, Failed, Patch, StreamEvent

WINDOW_CHUNKS = 8  # of a chained stream: sent, and not yet taken by the last model of the ensemble
STALLED_S = 60.0  # without one being taken


class _Next(Enum):
    ATTEMPT = "attempt"  # the one before ran to its limit
    CHUNK = "chunk"  # the last model of the ensemble has taken one


class OutputStream:
    """The engine's event sink for one request; its responses leave from a sender thread, in order."""

    def __init__(
        self, channel: Channel, place: Place, output: Output, pool: SenderPool, log: Log
    ) -> None:
        self._channel = channel
        self._name = f"request {channel.request_id!r}"  # in the log
        self._place = place
        self._output = output
        self._log = log
        self._lane = pool.lane(self._handle)
        self._cancel: Callable[[], None] | None = None
        self._departure: RequestError | None = None  # once set, nothing but it is sent
        self._num_patches = 0
        self._held: deque[Chunk] = deque()  # of a chained stream, beyond the window
        self._num_sent = self._num_taken = 0  # chunks
        self._taken_s = time.monotonic()
        channel.when_taken = self._take_note
        self._attempts: deque[EngineRequest] = deque()
        self._last_index = 0  # of a patch of the attempt that runs

    @property
    def id(self) -> str:
        return self._channel.stream_id

    @property
    def ended(self) -> bool:
        return self._channel.closed

    @property
    def is_waiting(self) -> bool:
        return self._place.is_waiting

    def run(self, engine: EngineHandle, attempts: Iterable[EngineRequest]) -> None:
        """Have the engine make the first attempt, and the next one whenever an attempt runs to its limit.

        From here on the stream answers, also when the engine refuses.
        """
        self._engine = engine
        self._attempts = deque(attempts)
        self._start_attempt()

    def sink(self, event: StreamEvent) -> None:
        """Take an event from the engine's thread: quick, and the gate learns of it at once."""
        if isinstance(event, Admitted):
            self._place.admit()
            self._channel.meter.admitted()
            return
        if isinstance(event, Patch) and event.index == self._last_index and self._attempts:
            self._place.wait_again()
            self._lane.put(_Next.ATTEMPT)
            return
        if isinstance(event, Failed) or event.finish_reason is not None:
            self._place.leave()
        self._lane.put(event)

    def cancel_if_gone(self) -> bool:
        try:
            self._departure = self._channel.departure() or self._stall()
            if self._departure is None:
                return False
        except Exception as fault:  # the poller serves all streams and must outlive one that cannot be asked
            internal_error(fault, self._name, self._log)
            return True
        # Answered now: the engine may be in a long prefill, and tells of its end only then.
        self._lane.put(Failed(self._departure))
        self._cancel_in_engine()
        return True

    def _start_attempt(self) -> None:
        """Not from the engine's thread: a command to it may have to wait for that thread."""
        request = self._attempts.popleft()
        self._chunker, self._info = self._output.chunker(), self._output.info(request.seed)
        self._last_index = request.max_patches - 1
        try:
            stream_id = self._engine.submit(request, self.sink)
        except RequestError as error:
            self.sink(Failed(error))
        except Exception as error:
            self.sink(Failed(internal_error(error, self._name, self._log)))
        else:
            self._cancel = lambda: self._engine.cancel(stream_id)
            if self._channel.closed or self._departure is not None:
                self._cancel()

    def _handle(self, event: Patch | Failed | _Next) -> None:
        try:
            if isinstance(event, Failed):
                self._fail(event.error)
            elif isinstance(event, Patch):
                self._send(event)
            elif event is _Next.CHUNK:
                self._flush()
            elif self._departure is not None:
                self.sink(Failed(self._departure))
            else:
                self._start_attempt()
        except Exception as error:
            self._cancel_in_engine()
            self._fail(internal_error(error, self._name, self._log))

    def _send(self, patch: Patch) -> None:
        if self._channel.closed or self._departure is not None:
            return
        self._num_patches += 1
        chunk = self._chunker.add(patch)
        if chunk is not None:
            self._held.append(chunk)
            self._flush()

    def _flush(self) -> None:
        """Triton holds whatever it is given for a slow model of an ensemble, so it is given no more than the window."""
        while self._held and not self._channel.closed and self._departure is None:
            if self._info.chain is not None and self._num_sent - self._num_taken >= WINDOW_CHUNKS:
                return
            chunk = self._held.popleft()
            if not self._num_sent - self._num_taken:
                self._taken_s = time.monotonic()
            self._num_sent += 1
            self._channel.send(chunk_tensors(chunk, self._info))
            self._channel.meter.sent(self._seconds_of(chunk), self._info.options.stream)
            if chunk.is_last:
                self._channel.finish(chunk.finish_reason)

    def _seconds_of(self, chunk: Chunk) -> float:
        if self._info.chain is not None and chunk.latents is not None:
            return len(chunk.latents) * self._info.chain.frame_s
        return chunk.num_samples / self._info.sample_rate

    def _take_note(self, num_taken: int) -> None:
        self._num_taken, self._taken_s = num_taken, time.monotonic()
        self._lane.put(_Next.CHUNK)

    def _stall(self) -> RequestError | None:
        if self._held and time.monotonic() > self._taken_s + STALLED_S:
            return RequestError(ErrorCode.INTERNAL, f"a model behind it has taken nothing for {STALLED_S:.0f} s")
        return None

    def _fail(self, error: RequestError) -> None:
        try:
            if self._channel.fail(error):
                self._log(f"{self._name}: {error.code.value} after {self._num_patches} patches")
        except Exception as fault:
            internal_error(fault, self._name, self._log)

    def _cancel_in_engine(self) -> None:
        if self._cancel is not None:
            self._cancel()
