"""The worker's side of event delivery: gathers the events of a turn and sends them as one message."""

from __future__ import annotations

from collections.abc import Callable

from voxcpm_core.types import Admitted, EngineStats, EventSink, Failed, StreamEvent
from voxcpm_core.worker.arena import RingArena
from voxcpm_core.worker.messages import NO_AUDIO, Event, Turn
from voxcpm_core.worker.ring import Ring


class Outbox:
    """`sink` and `flush` belong to the engine's thread. Audio and latents stay where they are: in the ring."""

    def __init__(self, ring: Ring, arena: RingArena, send: Callable[[object], None]) -> None:
        self._ring = ring
        self._arena = arena
        self._send = send
        self._events: list[Event] = []
        self._slots: set[int] = set()

    def sink(self, stream_id: int) -> EventSink:
        """Where the engine's events of one stream go."""

        def take(event: StreamEvent) -> None:
            self._events.append(self._packed(stream_id, event))

        return take

    def flush(self, stats: EngineStats) -> None:
        """Send what happened since the last time."""
        self._arena.sent(self._slots)
        self._send(Turn(self._events, self._slots, stats))
        self._events, self._slots = [], set()

    def _packed(self, stream_id: int, event: StreamEvent) -> Event:
        if isinstance(event, Admitted):
            return (stream_id,)
        if isinstance(event, Failed):
            return stream_id, event.error.code, str(event.error)
        slot, latents_at = self._ring.locate(event.latents)
        self._slots.add(slot)
        audio_at = NO_AUDIO if event.audio is None else self._ring.locate(event.audio)[1]
        return stream_id, event.index, event.finish_reason, slot, latents_at, audio_at
