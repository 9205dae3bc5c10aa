"""The blocking pool."""

from __future__ import annotations

import os
import queue
from collections.abc import Generator
from types import TracebackType

from voxcpm_core.api.info import ModelInfo
from voxcpm_core.api.pool import Pool, pad_side, received
from voxcpm_core.api.request import Latents, check_transcript, speech_request
from voxcpm_core.api.settings import PoolSettings
from voxcpm_core.api.workers import Chunk, Workers
from voxcpm_core.types import Failed, FloatArray


class SyncPool(Pool):
    """Engine workers behind blocking calls. Threads may share it; leaving `with` stops it."""

    def __init__(self, settings: PoolSettings) -> None:
        """Return when the workers are ready; raises StartupError."""
        super().__init__(settings)
        try:
            self.wait_for_ready()
        except BaseException:
            self._starting.add_done_callback(lambda _: self._stop())  # somebody who gives up does not wait for it
            raise

    def __enter__(self) -> SyncPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def wait_for_ready(self) -> None:
        """Returns at once: a SyncPool is made with its workers ready."""
        self._starting.result()

    def generate(
        self,
        target_text: str,
        prompt_latents: Latents | None = None,
        prompt_text: str = "",
        prompt_id: str | None = None,
        max_generate_length: int | None = None,
        temperature: float = 1.0,
        cfg_value: float = 2.0,
        ref_audio_latents: Latents | None = None,
        lora_name: str | None = None,
        seed: int | None = None,
        *,
        inference_timesteps: int | None = None,
        min_length: int = 2,
        length_cap: bool = True,
        ignore_stop: bool = False,
        voice: str | None = None,
    ) -> Generator[FloatArray, None, None]:
        """Speech, patch by patch as it is made: float32 [samples] in [-1, 1], each array the caller's own.

        The request starts at the first `next`, which raises RequestError for bad input; a stream that fails raises it
        later. Closing the generator cancels the request. Latents are float32, bytes or [frames, feat_dim], made by
        `encode_latents`; lengths are in patches. None leaves the length to the cache, the timesteps to the pool and
        the seed to chance. `prompt_id`, of `add_prompt`, stands for prompt_latents and prompt_text; `voice`, a name in
        the folder that the pool's setting `voices` names, for those and ref_audio_latents. `lora_name` is
        an adapter of `register_lora`, or of the folder that the setting `lora_root` names.
        """
        workers = self._workers()
        speech = speech_request(
            target_text, prompt_latents, prompt_text, max_generate_length, temperature, cfg_value,
            ref_audio_latents, seed, self._timesteps(inference_timesteps), min_length, length_cap,
            ignore_stop,
        )
        events: queue.SimpleQueue[Chunk | Failed] = queue.SimpleQueue()
        with workers.stream(self._engine_request(workers, speech, prompt_id, voice, lora_name), events.put):
            while True:
                chunk = received(events.get())
                yield chunk.audio
                if chunk.is_last:
                    return

    def encode_latents(self, wav: bytes, wav_format: str, role: str = "prompt") -> bytes:
        """Latents of a whole audio file, float32 [frames, feat_dim] row by row, for `generate` of any pool.

        `wav_format` is one of wav, flac, ogg and mp3; what the file really is decides. Silence fills the first patch
        of a "prompt", and the last of a "reference". Raises RequestError.
        """
        pad = pad_side(role)
        workers = self._workers()
        waveform = self._waveform(workers, wav, wav_format)
        with workers.chosen() as handle:
            return handle.encode(waveform, pad).result().tobytes()

    def add_prompt(self, wav: bytes, wav_format: str, prompt_text: str) -> str:
        """Encode and keep a prompt for `generate(prompt_id=...)`, until `remove_prompt`; returns its id."""
        check_transcript(prompt_text)
        return self._conditions.add_prompt(self.encode_latents(wav, wav_format), prompt_text)

    def remove_prompt(self, prompt_id: str) -> None:
        """Forget a prompt; streams that have begun with it go on. Raises RequestError."""
        self._conditions.remove_prompt(prompt_id)

    def register_lora(self, name: str, path: str | os.PathLike[str]) -> None:
        """Keep an adapter's folder, inside of the pool's setting `lora_root`, for `generate(lora_name=...)`.

        Requests with different adapters and without share batches. Raises RequestError for a name that is taken, and
        for an adapter that the model cannot use.
        """
        self._loras.register(self._workers().any, name, path)

    def unregister_lora(self, name: str) -> None:
        """Forget an adapter; streams that have begun with it go on. Raises RequestError."""
        self._loras.unregister(name)

    def list_loras(self) -> list[str]:
        """The names that `generate` takes."""
        return self._loras.names()

    def get_model_info(self) -> ModelInfo:
        return self._model_info(self._workers())

    def stop(self) -> None:
        """End all streams with NOT_READY and the workers. May be called again; everything else then raises it."""
        self._stop()

    def _workers(self) -> Workers:
        self._check_running()
        return self._starting.result()
