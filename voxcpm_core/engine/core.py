"""One engine, driven step by step from a single thread."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
from torch import Tensor

from voxcpm_core.engine.encodings import EncodingQueue, Job
from voxcpm_core.engine.memory import MemoryPlan
from voxcpm_core.engine.pace import Pace
from voxcpm_core.errors import ErrorCode, RequestError, shown
from voxcpm_core.faults import internal_error
from voxcpm_core.lora.library import LoraLibrary
from voxcpm_core.lora.slots import LoadedLora
from voxcpm_core.output_layout import HostOutputs
from voxcpm_core.runner import InFlight, Runner
from voxcpm_core.scheduler import Scheduler, StepPlan, Stream
from voxcpm_core.types import (
    PAD_SIDES,
    Admitted,
    EngineEvent,
    EngineRequest,
    EngineStats,
    Failed,
    FinishReason,
    FloatArray,
    PadSide,
    StepOutput,
)

Value = TypeVar("Value")
log = logging.getLogger(__name__)


class EngineCore:
    """Scheduler and runner together. Every stream gets exactly one terminal event; `take_events` gives them out.

    With `run_ahead` a step is launched before the one before it is collected, so that the device never
    waits for the host; without, the two alternate. The results are the same.
    """

    def __init__(
        self, scheduler: Scheduler, runner: Runner, max_running: int, run_ahead: bool, memory: MemoryPlan,
        loras: LoraLibrary | None = None,
    ) -> None:
        self._scheduler = scheduler
        self.runner = runner
        self.memory = memory
        self.loras = loras
        self._awaited: dict[int, tuple[EngineRequest, Future[LoadedLora]]] = {}  # streams whose adapters are read
        self._encodings = EncodingQueue(runner)
        self._max_running = max_running
        self._max_in_flight = 1 if run_ahead else 0
        self._in_flight: deque[InFlight] = deque()
        self._pace = Pace()
        self._streams: dict[int, Stream] = {}  # without a terminal event so far
        self._events: list[EngineEvent] = []
        self._num_steps = 0
        self._num_prefills = 0
        self._num_prefill_positions = 0
        self._num_shared_positions = 0
        self._num_patches = 0
        self._busy_ns = 0
        self._busy_until_ns = 0

    @property
    def has_work(self) -> bool:
        return bool(self._streams or self._in_flight or self._encodings.keys)

    def add(self, stream_id: int, request: EngineRequest) -> Future[LoadedLora] | None:
        """Queue a request. If that has to wait for a future, call `enter` when it is done; others pass meanwhile."""
        if request.lora is None:
            self._enter(stream_id, request, None)
            return None
        if self.loras is None:
            error = RequestError(ErrorCode.UNKNOWN_LORA, f"there is no adapter {shown(request.lora.name)}")
            self._events.append((stream_id, Failed(error)))
            return None
        loading = self.loras.get(request.lora)
        self._awaited[stream_id] = request, loading
        if not loading.done():
            return loading
        self.enter(stream_id)
        return None

    def enter(self, stream_id: int) -> None:
        """Go on with a request whose adapter has been read, unless it was cancelled meanwhile."""
        request, loading = self._awaited.pop(stream_id, (None, None))
        if request is None or loading is None:
            return
        error = loading.exception()
        if error is None:
            self._enter(stream_id, request, loading.result())
        else:
            assert isinstance(error, RequestError)
            self._events.append((stream_id, Failed(error)))

    def cancel(self, stream_id: int) -> None:
        """End a stream with CANCELLED; unknown or ended ids are ignored."""
        error = RequestError(ErrorCode.CANCELLED, "cancelled by the client")
        if stream_id in self._streams:
            self._fail(self._streams[stream_id], error)
        elif self._awaited.pop(stream_id, None) is not None:
            self._events.append((stream_id, Failed(error)))
        else:
            self._encodings.fail(stream_id, error)

    def take_events(self) -> list[EngineEvent]:
        """What has happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    def encode(self, waveform: FloatArray, pad: PadSide) -> Future[FloatArray]:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate, after some steps."""
        future: Future[FloatArray] = Future()
        self._encodings.add(future, Job(
            subject="an encoding",
            unknown=lambda: {pad: waveform},
            done=lambda encoded: future.set_result(self.runner.host_latents(encoded[pad])),
            fail=future.set_exception,
        ))  # fmt: skip
        return future

    @property
    def keeps_voices(self) -> bool:
        """Whether prompts and references are kept for their next use."""
        return self.runner.conditions.max_bytes > 0

    def forget_voices(self) -> None:
        """Keep nothing of the prompts and references that came so far."""
        self.runner.conditions.clear()
        self._scheduler.forget_prefixes()

    def fail_all(self, error: RequestError) -> None:
        """End every stream with the same error."""
        self._events += [(stream_id, Failed(error)) for stream_id in self._awaited]
        self._awaited.clear()
        for key in self._encodings.keys:
            self._encodings.fail(key, error)
        for stream in list(self._streams.values()):
            self._fail(stream, error)

    def step(self) -> None:
        """Plan and launch the next step, then collect what is not allowed to stay in flight."""
        if not self._in_flight:  # else the device has been at work since the turn before ended
            self._busy_until_ns = time.monotonic_ns()
        try:
            self._step()
        finally:
            before_ns, self._busy_until_ns = self._busy_until_ns, time.monotonic_ns()
            self._busy_ns += self._busy_until_ns - before_ns

    def _step(self) -> None:
        start_s = time.monotonic()
        plan = self._scheduler.plan()
        keep = 0
        if plan is not None:
            for stream in plan.prefills:
                self._events.append((stream.stream_id, Admitted()))
            try:
                launched = self.runner.launch(plan)
                was_late = any(step.device_is_free for step in self._in_flight)
                self._pace.launched(time.monotonic() - start_s, was_late)
                self._launched(launched)
                keep = self._max_in_flight
            except Exception as error:
                self._fail_step(plan, error)
        self._encodings.advance()  # behind the step, which is not to wait for it
        while len(self._in_flight) > keep:
            self._collect(self._in_flight.popleft())

    def admit(self) -> None:
        """While a step runs: take newcomers in for the next one, and launch what of their prefixes can run beside."""
        if not (self._in_flight and self.runner.can_prefill_beside):
            return
        admitted = self._scheduler.admit(lambda stream: self.runner.may_prefill_beside(stream.request))
        if not admitted:
            return
        # What was collected is over on the device, audio too, so a step in flight is all that still uses anything.
        in_flight = [stream for step in self._in_flight for stream in step.plan.batch.streams]
        gone = [stream for stream in in_flight if not self._scheduler.is_running(stream)]
        slots, pages = {stream.slot for stream in gone}, {page for stream in gone for page in stream.pages}
        beside = [stream for stream in admitted if stream.slot not in slots and pages.isdisjoint(stream.pages)]
        for stream in beside:
            self._events.append((stream.stream_id, Admitted()))
            stream.is_prefilled = True
        if beside:
            for stream, error in self.runner.prefill_beside(beside):
                self._fail_streams([stream], error)

    def slack_s(self) -> float:
        """How long the next `step` can wait for newcomers without the device waiting for it; 0 if not at all."""
        has_room = self._scheduler.num_running < self._max_running
        return self._pace.slack_s(time.monotonic()) if self._in_flight and has_room else 0.0

    def stats(self) -> EngineStats:
        return EngineStats(
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting + len(self._awaited) + self._encodings.num_streams,
            max_running=self._max_running,
            pages_used=self._scheduler.pages_used,
            pages_total=self._scheduler.pages_total,
            num_steps=self._num_steps,
            num_dit_calls=self.runner.num_dit_calls,
            num_prefills=self._num_prefills,
            num_patches=self._num_patches,
            num_encodings=self.runner.conditions.num_encodings,
            num_voice_hits=self.runner.conditions.num_hits,
            num_voice_misses=self.runner.conditions.num_misses,
            num_prefill_positions=self._num_prefill_positions,
            num_shared_positions=self._num_shared_positions,
            pages_kept=self._scheduler.pages_kept,
            voice_cache_bytes=self.runner.conditions.num_bytes,
            collected_ns=self.runner.collected_ns,
            busy_ns=self._busy_ns,
        )

    def _enter(self, stream_id: int, request: EngineRequest, lora: LoadedLora | None) -> None:
        """Queue a request, once its audio is encoded: those that need none pass meanwhile."""

        def begin(encoded: Mapping[PadSide, Tensor]) -> None:
            for pad, patches in encoded.items():
                self.runner.conditions.remember(given[pad], pad, patches)
            stream = self._streams[stream_id] = self._scheduler.add(stream_id, request, lora)
            stream.encoded = encoded

        given = request.conditions
        if not self._unknown(request, lora):
            begin({})
            return
        self._encodings.add(stream_id, Job(
            subject=f"request {request.request_id!r}",
            unknown=lambda: self._unknown(request, lora),
            done=begin,
            fail=lambda error: self._events.append((stream_id, Failed(error))),
        ))  # fmt: skip

    def _unknown(self, request: EngineRequest, lora: LoadedLora | None) -> dict[PadSide, FloatArray]:
        """What of its audio must be encoded before it can run."""
        known = PAD_SIDES["reference"] if self._scheduler.knows_reference(request, lora) else None
        return {
            pad: given.waveform for pad, given in request.conditions.items()
            if given.waveform is not None and pad != known and not self.runner.conditions.knows(given, pad)
        }  # fmt: skip

    def _launched(self, step: InFlight) -> None:
        self._num_steps += 1
        self._num_patches += len(step.plan.patch_indices)
        for stream in step.plan.newcomers:
            self._num_prefills += 1
            self._num_shared_positions += stream.num_known
            self._num_prefill_positions += stream.request.num_prefill - stream.num_known
            self._scheduler.prefilled(stream)
        for stream, error in step.failures:
            self._fail_streams([stream], error)
        if step.copy is not None:
            self._in_flight.append(step)

    def _collect(self, step: InFlight) -> None:
        try:
            outputs = self.runner.collect(step)
            self._pace.collected(self.runner.freed_ns / 1e9, next_in_flight=bool(self._in_flight))
        except Exception as error:
            self._fail_step(step.plan, error)
            return
        reasons = self._scheduler.observe(step.plan, outputs.stops.tolist())
        is_finite = np.isfinite(outputs.latents)
        if not is_finite.all():
            rows = zip(step.plan.batch.streams, is_finite, strict=True)
            broken = [stream for stream, finite in rows if not finite.all()]
            self._fail_streams(broken, FloatingPointError("a latent is not finite"))
        self._emit(step.plan, outputs, reasons)

    def _emit(self, plan: StepPlan, outputs: HostOutputs, reasons: list[FinishReason | None]) -> None:
        """Give out the patches of streams that have not ended."""
        stream_ids = plan.batch.stream_ids
        live = [row for row, stream_id in enumerate(stream_ids) if stream_id in self._streams]
        if not live:
            return

        def of_live(column: list[Value]) -> list[Value]:
            return column if len(live) == len(stream_ids) else [column[row] for row in live]

        output = StepOutput(
            stream_ids=of_live(stream_ids),
            indices=of_live(plan.patch_indices),
            reasons=of_live(reasons),
            latents_rows=live,
            audio_rows=of_live(plan.batch.audio_rows),
            latents=outputs.latents,
            audio=outputs.audio,
        )
        for stream_id, reason in zip(output.stream_ids, output.reasons, strict=True):
            if reason is not None:
                del self._streams[stream_id]
        self._events.append(output)

    def _fail_step(self, plan: StepPlan, error: Exception) -> None:
        """End the streams of a step that raised; raises itself when the device is lost to all others, too."""
        self._fail_streams(plan.batch.streams, error)
        self.runner.require_device()

    def _fail_streams(self, streams: Iterable[Stream], error: Exception) -> None:
        for stream in streams:
            self.forget_voices()  # what it began with, or left for others, may be to blame
            self._fail(stream, internal_error(error, f"request {stream.request.request_id!r}", log.error))

    def _fail(self, stream: Stream, error: RequestError) -> None:
        self._scheduler.drop(stream)
        if self._streams.pop(stream.stream_id, None) is not None:
            self._events.append((stream.stream_id, Failed(error)))
