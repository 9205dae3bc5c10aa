"""One engine, driven step by step from a single thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

import numpy as np

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.faults import internal_error
from voxcpm_core.runner import InFlight, Runner
from voxcpm_core.scheduler import Row, Scheduler, Stream
from voxcpm_core.types import (
    Admitted,
    EngineRequest,
    EngineStats,
    EventSink,
    Failed,
    FloatArray,
    PadSide,
    Patch,
    StreamEvent,
)

log = logging.getLogger(__name__)


class EngineCore:
    """Scheduler and runner together. Every stream gets exactly one terminal event.

    With `run_ahead` a step is launched before the one before it is collected, so that the device never
    waits for the host; without, the two alternate. The results are the same.
    """

    def __init__(self, scheduler: Scheduler, runner: Runner, max_running: int, run_ahead: bool) -> None:
        self._scheduler = scheduler
        self.runner = runner
        self._max_running = max_running
        self._max_in_flight = 1 if run_ahead else 0
        self._in_flight: deque[InFlight] = deque()
        self._sinks: dict[int, tuple[Stream, EventSink]] = {}
        self._num_steps = 0
        self._num_prefills = 0
        self._num_patches = 0

    @property
    def has_work(self) -> bool:
        return bool(self._sinks or self._in_flight)

    def add(self, stream_id: int, request: EngineRequest, sink: EventSink) -> None:
        self._sinks[stream_id] = self._scheduler.add(stream_id, request), sink

    def cancel(self, stream_id: int) -> None:
        """End a stream with CANCELLED; unknown or ended ids are ignored."""
        if stream_id in self._sinks:
            self._fail(self._sinks[stream_id][0], RequestError(ErrorCode.CANCELLED, "cancelled by the client"))

    def encode(self, waveform: FloatArray, pad: PadSide) -> FloatArray:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate."""
        return self.runner.encode(waveform, pad)

    def fail_all(self, error: RequestError) -> None:
        """End every stream with the same error."""
        for stream, _ in list(self._sinks.values()):
            self._fail(stream, error)

    def step(self) -> None:
        """Plan and launch the next step, then collect what is not allowed to stay in flight."""
        plan = self._scheduler.plan()
        keep = 0
        if plan is not None:
            for stream in plan.prefills:
                self._emit(stream, Admitted())
            try:
                self._launched(self.runner.launch(plan))
                keep = self._max_in_flight
            except Exception as error:
                self._fail_step(plan.rows, error)
        while len(self._in_flight) > keep:
            self._collect(self._in_flight.popleft())

    def stats(self) -> EngineStats:
        return EngineStats(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            max_running=self._max_running,
            pages_used=self._scheduler.pages_used,
            pages_total=self._scheduler.pages_total,
            num_steps=self._num_steps,
            num_dit_calls=self.runner.model.dit.num_calls,
            num_prefills=self._num_prefills,
            num_patches=self._num_patches,
            collected_ns=self.runner.collected_ns,
        )

    def _launched(self, step: InFlight) -> None:
        self._num_steps += 1
        self._num_patches += len(step.rows)
        self._num_prefills += sum(row.patch_index == 0 for row in step.rows)
        for stream, error in step.failures:
            self._fail_streams([stream], error)
        if step.copy is not None:
            self._in_flight.append(step)

    def _collect(self, step: InFlight) -> None:
        try:
            result = self.runner.collect(step)
        except Exception as error:
            self._fail_step(step.rows, error)
            return
        reasons = self._scheduler.observe(step.rows, result.stops)
        finite = np.isfinite(result.latents).all(axis=(1, 2)).tolist()
        outputs = zip(step.rows, result.latents, result.audio, reasons, finite, strict=True)
        for row, latents, audio, reason, is_finite in outputs:
            if is_finite:
                self._emit(row.stream, Patch(row.patch_index, latents, audio, reason))
            else:
                self._fail_streams([row.stream], FloatingPointError("a latent is not finite"))

    def _fail_step(self, rows: Iterable[Row], error: Exception) -> None:
        """End the streams of a step that raised; raises itself when the device is lost to all others, too."""
        self._fail_streams((row.stream for row in rows), error)
        self.runner.require_device()

    def _fail_streams(self, streams: Iterable[Stream], error: Exception) -> None:
        for stream in streams:
            self._fail(stream, internal_error(error, stream.request.request_id, log.error))

    def _fail(self, stream: Stream, error: RequestError) -> None:
        self._scheduler.drop(stream)
        self._emit(stream, Failed(error))

    def _emit(self, stream: Stream, event: StreamEvent) -> None:
        """Hand an event to the stream's owner; after a terminal one there is no owner any more."""
        owner = self._sinks.get(stream.stream_id)
        if owner is None:
            return
        if isinstance(event, Failed) or (isinstance(event, Patch) and event.finish_reason is not None):
            del self._sinks[stream.stream_id]
        owner[1](event)
