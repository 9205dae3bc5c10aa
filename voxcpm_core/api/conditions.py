"""What a pool keeps for its requests: prompts under ids, and the folder of voices."""

from __future__ import annotations

import secrets
import threading
from dataclasses import replace

import numpy as np

from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError, shown
from voxcpm_core.types import Condition, SpeechRequest
from voxcpm_core.voices import VoiceStore
from voxcpm_core.voices.speech import with_voice


class Conditions:
    """Thread-safe."""

    def __init__(self, config: EngineConfig) -> None:
        self._voices = VoiceStore(config.voices, config.max_voices, config.max_voices_mib)
        self._lock = threading.Lock()
        self._prompts: dict[str, tuple[bytes, str]] = {}

    def add_prompt(self, latents: bytes, prompt_text: str) -> str:
        """Keep a prompt until it is removed; returns its id."""
        prompt_id = secrets.token_hex(16)
        with self._lock:
            self._prompts[prompt_id] = latents, prompt_text
        return prompt_id

    def remove_prompt(self, prompt_id: str) -> None:
        """Streams that have begun with it go on. Raises UNKNOWN_VOICE."""
        with self._lock:
            if self._prompts.pop(prompt_id, None) is None:
                raise _unknown(prompt_id)

    def apply(
        self, speech: SpeechRequest, prompt_id: str | None, voice: str | None, model: ModelConfig
    ) -> SpeechRequest:
        """The request with the prompt or the voice that it names.

        Raises UNKNOWN_VOICE, CONFLICTING_INPUTS when it brings what they stand for, and as `with_voice` does.
        """
        has_prompt = speech.prompt is not None or bool(speech.prompt_text)
        if prompt_id is not None:
            if has_prompt or voice is not None:
                raise _conflict("prompt_id excludes prompt_latents, prompt_text and voice")
            return self._with_prompt(speech, prompt_id)
        if voice is not None:
            if has_prompt or speech.reference is not None:
                raise _conflict("voice excludes prompt_latents, prompt_text and ref_audio_latents")
            return with_voice(speech, self._voices.get(str(voice)), model)
        return speech

    def _with_prompt(self, speech: SpeechRequest, prompt_id: str) -> SpeechRequest:
        with self._lock:
            found = self._prompts.get(prompt_id)
        if found is None:
            raise _unknown(prompt_id)
        latents, prompt_text = found
        return replace(speech, prompt=Condition(latents=np.frombuffer(latents, np.float32)), prompt_text=prompt_text)


def _unknown(prompt_id: object) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_VOICE, f"there is no prompt {shown(prompt_id)}")


def _conflict(message: str) -> RequestError:
    return RequestError(ErrorCode.CONFLICTING_INPUTS, message)
