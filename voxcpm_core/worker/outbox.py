"""The worker's side of event delivery: the events of a turn as one message, their arrays left in the ring."""

from __future__ import annotations

from collections.abc import Iterable

from voxcpm_core.types import Admitted, EngineEvent, EngineStats, StepOutput
from voxcpm_core.worker.arena import RingArena
from voxcpm_core.worker.messages import StepInRing, Turn
from voxcpm_core.worker.ring import Ring


def packed(events: Iterable[EngineEvent], arena: RingArena, stats: EngineStats) -> Turn:
    """The message of one turn, which is to be sent: the slots of its steps leave the arena."""
    turn = Turn([], tuple(stats))
    for event in events:
        if isinstance(event, StepOutput):
            step = _in_ring(event, arena.ring)
            arena.sent(step.slot)
            turn.events.append(tuple(step))
        elif isinstance(event[1], Admitted):
            turn.events.append((event[0],))
        else:
            error = event[1].error
            turn.events.append((event[0], error.code.value, str(error)))
    return turn


def _in_ring(step: StepOutput, ring: Ring) -> StepInRing:
    slot, latents_at = ring.locate(step.latents)
    audio_at = ring.locate(step.audio)[1] if len(step.audio) else 0
    reasons = {i: reason.value for i, reason in enumerate(step.reasons) if reason is not None}
    in_order = list(range(len(step.stream_ids)))
    return StepInRing(
        step.stream_ids, step.indices, reasons,
        None if step.latents_rows == in_order else step.latents_rows,
        None if step.audio_rows == in_order else step.audio_rows,
        slot, latents_at, len(step.latents), audio_at, len(step.audio),
    )
