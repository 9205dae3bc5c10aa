"""The worker's side of event delivery: the events of a turn as one message, their arrays left in the ring."""

from __future__ import annotations

from collections.abc import Iterable

from voxcpm_core.types import Admitted, EngineEvent, EngineStats, StepOutput
from voxcpm_core.worker.messages import StepInRing, Turn
from voxcpm_core.worker.ring import Ring


def packed(events: Iterable[EngineEvent], ring: Ring, stats: EngineStats) -> Turn:
    """The message of one turn."""
    turn = Turn([], stats)
    for event in events:
        if isinstance(event, StepOutput):
            turn.events.append(_in_ring(event, ring))
        elif isinstance(event[1], Admitted):
            turn.events.append((event[0], event[1]))
        else:
            error = event[1].error
            turn.events.append((event[0], error.code, str(error)))
    return turn


def _in_ring(step: StepOutput, ring: Ring) -> StepInRing:
    slot, latents_at = ring.locate(step.latents)
    audio_at = ring.locate(step.audio)[1] if len(step.audio) else 0
    return StepInRing(
        step.stream_ids, step.indices, step.reasons, step.latents_rows, step.audio_rows,
        slot, latents_at, len(step.latents), audio_at, len(step.audio),
    )
