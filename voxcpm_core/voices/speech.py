"""A voice in the place of the prompt and the reference that a request may bring itself."""

from __future__ import annotations

from dataclasses import replace

from voxcpm_core.config.model import ModelConfig
from voxcpm_core.errors import invalid_parameter, shown
from voxcpm_core.types import Condition, FloatArray, SpeechRequest
from voxcpm_core.voices.voice import Voice, model_fingerprint


def with_voice(speech: SpeechRequest, voice: Voice, model: ModelConfig) -> SpeechRequest:
    """The same request as one that brings the voice's latents and transcript.

    Raises INVALID_PARAMETER for the voice of a model with other latents.
    """
    record, wanted = voice.record, model_fingerprint(model)
    if record.model != wanted:
        raise invalid_parameter(f"the voice {shown(record.name)} is one of another model ({record.model})")
    return replace(
        speech,
        prompt=_condition(voice.prompt),
        prompt_text=record.prompt_text,
        reference=_condition(voice.reference),
    )


def _condition(latents: FloatArray | None) -> Condition | None:
    return None if latents is None else Condition(latents=latents)
