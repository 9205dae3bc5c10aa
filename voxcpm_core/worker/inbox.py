"""The parent's side of event delivery: a worker's turn as the engine's own events."""

from __future__ import annotations

from typing import Any

from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.types import Admitted, EngineEvent, Failed, FinishReason, StepOutput
from voxcpm_core.worker.lending import Lender
from voxcpm_core.worker.messages import StepInRing, Turn

ADMITTED_LENGTH, FAILED_LENGTH = 1, 3


class Inbox:
    """Puts arrays over the ring back into the events."""

    def __init__(self, model: ModelConfig, lender: Lender) -> None:
        self._lender = lender
        self._latents_shape = model.patch_size, model.feat_dim
        self._num_latents, self._num_samples = model.patch_size * model.feat_dim, model.samples_per_patch

    def unpacked(self, turn: Turn) -> list[EngineEvent]:
        return [self._event(event) for event in turn.events]

    def _event(self, event: tuple[Any, ...]) -> EngineEvent:
        if len(event) == ADMITTED_LENGTH:
            return event[0], Admitted()
        if len(event) == FAILED_LENGTH:
            stream_id, code, message = event
            return stream_id, Failed(RequestError(ErrorCode(code), message))
        return self._step(StepInRing(*event))

    def _step(self, step: StepInRing) -> StepOutput:
        floats = self._lender.open(step.slot)
        latents_end = step.latents_at + step.num_latents_rows * self._num_latents
        audio_end = step.audio_at + step.num_audio_rows * self._num_samples
        reasons: list[FinishReason | None] = [None] * len(step.stream_ids)
        for position, reason in step.reasons.items():
            reasons[position] = FinishReason(reason)
        in_order = list(range(len(step.stream_ids)))
        return StepOutput(
            step.stream_ids, step.indices, reasons,
            latents_rows=in_order if step.latents_rows is None else step.latents_rows,
            audio_rows=[*in_order] if step.audio_rows is None else step.audio_rows,
            latents=floats[step.latents_at : latents_end].reshape(-1, *self._latents_shape),
            audio=floats[step.audio_at : audio_end].reshape(-1, self._num_samples),
        )
