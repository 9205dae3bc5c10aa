"""The parent's side of event delivery: a worker's turn as the engine's own events."""

from __future__ import annotations

from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import RequestError
from voxcpm_core.types import EngineEvent, Failed, StepOutput
from voxcpm_core.worker.lending import Lender
from voxcpm_core.worker.messages import StepInRing, Turn


class Inbox:
    """Puts arrays over the ring back into the events."""

    def __init__(self, model: ModelConfig, lender: Lender) -> None:
        self._lender = lender
        self._latents_shape = model.patch_size, model.feat_dim
        self._num_latents, self._num_samples = model.patch_size * model.feat_dim, model.samples_per_patch

    def unpacked(self, turn: Turn) -> list[EngineEvent]:
        return [self._event(event) for event in turn.events]

    def _event(self, event: object) -> EngineEvent:
        if isinstance(event, StepInRing):
            return self._step(event)
        assert isinstance(event, tuple)
        if len(event) == 2:
            return event
        stream_id, code, message = event
        return stream_id, Failed(RequestError(code, message))

    def _step(self, step: StepInRing) -> StepOutput:
        floats = self._lender.open(step.slot)
        latents_end = step.latents_at + step.num_latents_rows * self._num_latents
        audio_end = step.audio_at + step.num_audio_rows * self._num_samples
        return StepOutput(
            step.stream_ids, step.indices, step.reasons, step.latents_rows, step.audio_rows,
            latents=floats[step.latents_at : latents_end].reshape(-1, *self._latents_shape),
            audio=floats[step.audio_at : audio_end].reshape(-1, self._num_samples),
        )
