"""The callers who wait for something from the worker, each of whom gets exactly one end."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import RequestError
from voxcpm_core.types import Admitted, EventSink, Failed, FloatArray, Patch, StreamEvent
from voxcpm_core.worker.lending import Lender
from voxcpm_core.worker.messages import ADMITTED_LENGTH, FAILED_LENGTH, NO_AUDIO, Encoded, Event, Turn
from voxcpm_core.worker.ring import Ring


class Streams:
    """Sinks by stream id, and futures by encode id. Any thread may add; one thread delivers."""

    def __init__(self, model: ModelConfig, ring: Ring) -> None:
        self._ring = ring
        self._lender = Lender(ring)
        self._latents_shape = model.patch_size, model.feat_dim
        self._num_latents, self._num_samples = model.patch_size * model.feat_dim, model.samples_per_patch
        self._lock = threading.Lock()
        self._sinks: dict[int, EventSink] = {}
        self._futures: dict[int, Future[FloatArray]] = {}

    def add(self, stream_id: int, sink: EventSink) -> None:
        with self._lock:
            self._sinks[stream_id] = sink

    def add_encoding(self, encode_id: int, future: Future[FloatArray]) -> None:
        with self._lock:
            self._futures[encode_id] = future

    def __contains__(self, stream_id: int) -> bool:
        return stream_id in self._sinks

    def deliver(self, turn: Turn) -> bool:
        """Give a turn's events to their owners; returns whether a patch was among them."""
        slots = self._lender.open(turn.slots)
        for event in turn.events:
            self._emit(event[0], self._unpacked(event, slots))
        return bool(turn.slots)

    def encoded(self, message: Encoded) -> None:
        with self._lock:
            future = self._futures.pop(message.encode_id)
        if message.error is not None:
            future.set_exception(RequestError(*message.error))
        else:
            assert message.latents is not None
            future.set_result(message.latents)

    def fail_all(self, error: RequestError) -> None:
        """End everybody with the same error; what the dead worker held of the ring is free again."""
        with self._lock:
            sinks, self._sinks = self._sinks, {}
            futures, self._futures = self._futures, {}
        self._lender.forget_worker()
        for sink in sinks.values():
            sink(Failed(error))
        for future in futures.values():
            future.set_exception(error)

    def _unpacked(self, event: Event, slots: dict[int, FloatArray]) -> StreamEvent:
        if len(event) == ADMITTED_LENGTH:
            return Admitted()
        if len(event) == FAILED_LENGTH:
            return Failed(RequestError(event[1], event[2]))
        _, index, finish_reason, slot, latents_at, audio_at = event
        values = slots[slot]
        audio = None if audio_at == NO_AUDIO else values[audio_at : audio_at + self._num_samples]
        latents = values[latents_at : latents_at + self._num_latents].reshape(self._latents_shape)
        return Patch(index, latents, audio, finish_reason)

    def _emit(self, stream_id: int, event: StreamEvent) -> None:
        is_last = isinstance(event, Failed) or (isinstance(event, Patch) and event.finish_reason is not None)
        with self._lock:
            sink = self._sinks.pop(stream_id, None) if is_last else self._sinks.get(stream_id)
        if sink is not None:
            sink(event)
