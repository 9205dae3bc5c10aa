"""What the blocking and the asyncio pool share: workers that start in the background, requests, audio files."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from voxcpm_core.api.conditions import Conditions
from voxcpm_core.api.info import ModelInfo, model_info
from voxcpm_core.api.loras import Loras
from voxcpm_core.api.settings import PoolSettings
from voxcpm_core.api.workers import THREAD_NAME, Chunk, Workers, start_workers
from voxcpm_core.audio.decoder import AudioDecoder
from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, shown
from voxcpm_core.prepare import prepare
from voxcpm_core.threads import in_thread
from voxcpm_core.types import PAD_SIDES, EngineRequest, EngineStats, Failed, FloatArray, PadSide, SpeechRequest

AUDIO_FORMATS = ("wav", "flac", "ogg", "mp3")


class Pool:
    """Base of both pools; its parts may be used from any thread. One that nobody holds any more stops by itself."""

    def __init__(self, settings: PoolSettings) -> None:
        self._settings = settings
        self._starting = in_thread(partial(start_workers, settings), THREAD_NAME)
        self._conditions = Conditions(settings.engine)
        self._loras = Loras(settings.engine)
        self._lock = threading.Lock()
        self._decoder: AudioDecoder | None = None
        self._is_stopped = False
        # Collection may happen in any thread, also in one that the workers would wait for.
        weakref.finalize(self, in_thread, partial(_close, self._starting), THREAD_NAME).atexit = False

    def stats(self) -> tuple[EngineStats, ...]:
        """Counters of each worker, in the order of `devices`; empty before they have started."""
        if not self._starting.done() or self._starting.exception() is not None:
            return ()
        return self._starting.result().stats()

    def _check_running(self) -> None:
        if self._is_stopped:
            raise RequestError(ErrorCode.NOT_READY, "the pool is stopped")

    def _stop(self) -> None:
        """End all streams with NOT_READY and all workers, those that are still starting as soon as they have."""
        with self._lock:
            self._is_stopped = True
            decoder, self._decoder = self._decoder, None
        if decoder is not None:
            decoder.close()
        _close(self._starting)

    def _model_info(self, workers: Workers) -> ModelInfo:
        return model_info(workers.any.model, workers.any.config.model)

    def _timesteps(self, inference_timesteps: int | None) -> int:
        return self._settings.inference_timesteps if inference_timesteps is None else inference_timesteps

    def _engine_request(
        self, workers: Workers, speech: SpeechRequest, prompt_id: str | None, voice: str | None, lora_name: str | None
    ) -> EngineRequest:
        speech = self._conditions.apply(speech, prompt_id, voice, workers.any.model)
        if lora_name is not None:
            speech = replace(speech, lora=self._loras.get(lora_name))
        return prepare(speech, workers.any.model, workers.any.config, workers.any.tokenizer)

    def _waveform(self, workers: Workers, wav: bytes, wav_format: str) -> FloatArray:
        """An audio file as the encoder takes it: [samples]."""
        if not isinstance(wav_format, str) or wav_format.lower() not in AUDIO_FORMATS:
            raise invalid_parameter(f"wav_format: expected one of {', '.join(AUDIO_FORMATS)}, got {shown(wav_format)}")
        if not isinstance(wav, (bytes, bytearray, memoryview)):
            raise RequestError(ErrorCode.INVALID_AUDIO, f"wav: expected the bytes of a file, got {type(wav).__name__}")
        return self._audio_decoder(workers).decode(bytes(wav))

    def _audio_decoder(self, workers: Workers) -> AudioDecoder:
        """Made with the first file: many programs never bring one."""
        model, config = workers.any.model, workers.any.config
        with self._lock:
            self._check_running()
            if self._decoder is None:
                self._decoder = AudioDecoder(model.vae.encoder_sample_rate, config.max_audio_seconds)
            return self._decoder


def _close(starting: Future[Workers]) -> None:
    if starting.exception() is None:
        starting.result().close()


def received(event: Chunk | Failed) -> Chunk:
    """A chunk; raises the error of a failed stream."""
    if isinstance(event, Failed):
        raise RequestError(event.error.code, str(event.error))  # one error may have ended many streams
    return event


def pad_side(role: str) -> PadSide:
    """Where silence fills up a patch of audio of that role; raises RequestError."""
    if role not in PAD_SIDES:
        raise invalid_parameter(f"role: expected one of {', '.join(PAD_SIDES)}, got {shown(role)}")
    return PAD_SIDES[role]
