"""From what somebody gives of a new voice to a voice in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from voxcpm_core.audio.condition import checked_condition
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.handle import EngineHandle
from voxcpm_core.prepare import prepare
from voxcpm_core.types import PAD_SIDES, Condition, FloatArray, PadSide, SpeechRequest
from voxcpm_core.voices.store import VoiceStore, already_exists
from voxcpm_core.voices.voice import Voice, VoiceRecord, checked_name, drawn_name

SILENT_PEAK = 1e-3  # -60 dB of full scale; nothing of a voice is heard below
Encode = Callable[[FloatArray, PadSide], FloatArray]  # [samples] to latents [frames, feat_dim]


def register(
    store: VoiceStore,
    engine: EngineHandle,
    encode: Encode,
    name: str | None,
    prompt_text: str,
    audio: Mapping[str, Callable[[], FloatArray]],
    latents: Mapping[str, FloatArray],
) -> VoiceRecord:
    """Store a new voice, under a drawn name when it has none.

    `audio` decodes the waveform [samples] of a "prompt" or "reference", `latents` holds them as float32, flat or
    [frames, feat_dim]. What is accepted can be used: it is checked as a request with the shortest text would be.
    Raises RequestError as such a request does, and as the store does; nothing is kept then.
    """
    store.require_folder()
    name = drawn_name() if name is None else checked_name(name)
    if store.has(name):
        raise already_exists(name)
    if twice := sorted(set(audio) & set(latents)):
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, f"{twice[0]}: audio and latents exclude each other")
    if not audio and not latents:
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, "a voice needs a prompt, a reference or both")
    conditions = {role: Condition(latents=values) for role, values in latents.items()}
    # Everything that can be told without the audio is, before a second is spent on it.
    awaited = {role: Condition(np.ones(1, np.float32)) for role in audio}
    _check({**conditions, **awaited}, prompt_text, engine)
    conditions |= {role: Condition(_heard(role, decode())) for role, decode in audio.items()}
    _check(conditions, prompt_text, engine)
    made = {role: _latents(role, condition, engine, encode) for role, condition in conditions.items()}
    voice = Voice.make(name, engine.model, made.get("prompt"), prompt_text, made.get("reference"))
    store.add(voice)
    return voice.record


def _check(conditions: Mapping[str, Condition], prompt_text: str, engine: EngineHandle) -> None:
    speech = SpeechRequest(
        "a", prompt_text=prompt_text, prompt=conditions.get("prompt"), reference=conditions.get("reference")
    )
    prepare(speech, engine.model, engine.config, engine.tokenizer)


def _heard(role: str, waveform: FloatArray) -> FloatArray:
    if np.abs(waveform).max() < SILENT_PEAK:
        raise RequestError(ErrorCode.INVALID_AUDIO, f"{role}_audio is silent")
    return waveform


def _latents(role: str, condition: Condition, engine: EngineHandle, encode: Encode) -> FloatArray:
    model, max_seconds = engine.model, engine.config.max_audio_seconds
    checked = checked_condition(role, condition, model, max_seconds)
    if checked.latents is None:
        assert checked.waveform is not None
        return encode(checked.waveform, PAD_SIDES[role])
    max_samples = max_seconds * model.vae.encoder_sample_rate
    if len(checked.latents) // model.patch_size > -(-max_samples // model.encoder_samples_per_patch):
        raise RequestError(ErrorCode.INVALID_LATENTS, f"{role}_latents are longer than {max_seconds} s")
    return checked.latents
