"""What a request needs before the engine can have it and execute() cannot wait for: decoded audio, normalised text."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace

from voxcpm_core.audio.decoder import AudioDecoder
from voxcpm_core.children import Departure
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.inputs import ParsedRequest
from voxcpm_core.text.clean import clean_text
from voxcpm_core.text.normalizer import TextNormalizer
from voxcpm_core.threads import in_thread
from voxcpm_core.types import Condition, EngineRequest, FloatArray, SpeechRequest


class Intake:
    """Completes requests that hold a place at the gate, which bounds its threads: one for each such request."""

    def __init__(self, model: ModelConfig, config: EngineConfig) -> None:
        self._decoder = AudioDecoder(model.vae.encoder_sample_rate, config.max_audio_seconds)
        self._normalizer = TextNormalizer()
        self._running: set[Future[None]] = set()

    def start(self, work: Callable[[], None]) -> None:
        """Run `work`, which must not raise, in a thread of its own."""
        running = in_thread(work, "voxcpm-intake")
        self._running.add(running)
        running.add_done_callback(self._running.discard)

    def complete(self, parsed: ParsedRequest, departure: Departure) -> SpeechRequest:
        """The speech with its text normalised and its audio files decoded, which may take seconds.

        Raises INVALID_AUDIO, INVALID_TEXT, what `departure` gives (asked every 0.2 s), and NOT_READY once closed.
        """
        speech = parsed.speech
        if parsed.normalize:
            text = self._normalizer.normalize(clean_text(speech.target_text), departure)
            if not text.strip():
                raise RequestError(ErrorCode.INVALID_TEXT, "normalisation leaves nothing of target_text")
            speech = replace(speech, target_text=text)
        audio = {role: Condition(self._decoder.decode(data, departure)) for role, data in parsed.uploads.items()}
        return replace(
            speech, prompt=audio.get("prompt", speech.prompt), reference=audio.get("reference", speech.reference)
        )

    def decode(self, data: bytes) -> FloatArray:
        """One audio file for somebody who is no request and stays."""
        return self._decoder.decode(data)

    def close(self) -> None:
        """Fail what is being completed, and wait until its callers know."""
        self._decoder.close()
        self._normalizer.close()
        wait(tuple(self._running))


def most_positions(least: EngineRequest, parsed: ParsedRequest, model: ModelConfig, config: EngineConfig) -> int:
    """The most KV positions that a request may turn out to take.

    `least` is the request with one patch of audio for each file that is still to be decoded.
    """
    limit = config.num_positions(model)
    if parsed.normalize:
        return limit
    most_samples = config.max_audio_seconds * model.vae.encoder_sample_rate
    most_patches = -(-most_samples // model.encoder_samples_per_patch)
    return min(limit, least.num_positions + len(parsed.uploads) * (most_patches - 1))
