"""From the engine's events, step by step, to the sinks of the streams."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from voxcpm_core.errors import RequestError
from voxcpm_core.types import EngineEvent, EventSink, Failed, Patch, StepOutput


class Fanout:
    """Sinks by stream id, each of which gets one terminal event. Any thread may add; one at a time delivers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sinks: dict[int, EventSink] = {}

    def add(self, stream_id: int, sink: EventSink) -> None:
        with self._lock:
            self._sinks[stream_id] = sink

    def __contains__(self, stream_id: int) -> bool:
        return stream_id in self._sinks

    def deliver(self, events: Iterable[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, StepOutput):
                self._deliver_step(event)
                continue
            stream_id, stream_event = event
            sink = self._take(stream_id) if isinstance(stream_event, Failed) else self._sinks.get(stream_id)
            if sink is not None:
                sink(stream_event)

    def fail(self, stream_id: int, error: RequestError) -> None:
        """End one stream, if it has not ended."""
        self.deliver([(stream_id, Failed(error))])

    def fail_all(self, error: RequestError) -> None:
        """End every stream with the same error."""
        with self._lock:
            sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink(Failed(error))

    def _deliver_step(self, step: StepOutput) -> None:
        outputs = zip(
            step.stream_ids, step.indices, step.reasons, step.latents_rows, step.audio_rows, strict=True
        )
        for stream_id, index, reason, latents_row, audio_row in outputs:
            sink = self._sinks.get(stream_id) if reason is None else self._take(stream_id)
            if sink is not None:
                audio = None if audio_row is None else step.audio[audio_row]
                sink(Patch(index, step.latents[latents_row], audio, reason))

    def _take(self, stream_id: int) -> EventSink | None:
        with self._lock:
            return self._sinks.pop(stream_id, None)
