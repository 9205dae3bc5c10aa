"""What a stream needs whose latents go through further models of an ensemble."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from voxcpm_core.handle import EngineHandle
from voxcpm_core.types import PAD_SIDES, Condition, FloatArray, SpeechRequest


def with_latents(speech: SpeechRequest, engine: EngineHandle) -> SpeechRequest:
    """The same speech with its audio as latents, which the decoder outside the engine starts with. Takes seconds."""
    conditions = {role: _encoded(getattr(speech, role), role, engine) for role in PAD_SIDES}
    return replace(speech, prompt=conditions["prompt"], reference=conditions["reference"])


def vae_context(speech: SpeechRequest, engine: EngineHandle) -> FloatArray:
    """What the engine's own decoder starts with, as in `Prefill`. # [frames, feat_dim]"""
    model = engine.model
    conditions = [each for each in (speech.reference, speech.prompt) if each is not None]
    given = [each.latents for each in conditions if each.latents is not None]
    if speech.prompt is None or not given:
        return np.zeros((0, model.feat_dim), np.float32)
    return np.concatenate(given)[-model.context_patches * model.patch_size :]


def _encoded(condition: Condition | None, role: str, engine: EngineHandle) -> Condition | None:
    if condition is None or condition.waveform is None:
        return condition
    return Condition(latents=engine.encode(condition.waveform, PAD_SIDES[role]).result())
