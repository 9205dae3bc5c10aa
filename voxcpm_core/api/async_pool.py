"""The asyncio pool."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from types import TracebackType

from voxcpm_core.api.info import ModelInfo
from voxcpm_core.api.pool import Pool, pad_side, received
from voxcpm_core.api.request import Latents, check_transcript, speech_request
from voxcpm_core.api.workers import Chunk, Workers
from voxcpm_core.types import Failed, FloatArray


class AsyncPool(Pool):
    """Engine workers behind coroutines, which never block the loop. Tasks, and loops, may share it.

    It is made at once; every coroutine waits until the workers are ready and raises StartupError when they do not
    start. Leaving `async with` stops it.
    """

    async def __aenter__(self) -> AsyncPool:
        await self.wait_for_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_for_ready(self) -> None:
        """Return when every worker has loaded its model; raises StartupError when one cannot."""
        await self._workers()

    async def generate(
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
    ) -> AsyncGenerator[FloatArray, None]:
        """`SyncPool.generate` for asyncio: `aclose`, or cancelling the task, cancels the request."""
        workers = await self._workers()
        speech = speech_request(
            target_text, prompt_latents, prompt_text, max_generate_length, temperature, cfg_value,
            ref_audio_latents, seed, self._timesteps(inference_timesteps), min_length, length_cap,
            ignore_stop,
        )
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Chunk | Failed] = asyncio.Queue()

        def sink(event: Chunk | Failed) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody listens any more
                loop.call_soon_threadsafe(events.put_nowait, event)

        with workers.stream(self._engine_request(workers, speech, prompt_id, voice, lora_name), sink):
            while True:
                chunk = received(await events.get())
                yield chunk.audio
                if chunk.is_last:
                    return

    async def encode_latents(self, wav: bytes, wav_format: str, role: str = "prompt") -> bytes:
        """`SyncPool.encode_latents` for asyncio."""
        pad = pad_side(role)
        workers = await self._workers()
        waveform = await asyncio.to_thread(self._waveform, workers, wav, wav_format)
        with workers.chosen() as handle:
            latents = await asyncio.wrap_future(handle.encode(waveform, pad))
        return latents.tobytes()

    async def add_prompt(self, wav: bytes, wav_format: str, prompt_text: str) -> str:
        """As `SyncPool.add_prompt`."""
        check_transcript(prompt_text)
        return self._conditions.add_prompt(await self.encode_latents(wav, wav_format), prompt_text)

    async def remove_prompt(self, prompt_id: str) -> None:
        """As `SyncPool.remove_prompt`."""
        self._conditions.remove_prompt(prompt_id)

    async def register_lora(self, name: str, path: str | os.PathLike[str]) -> None:
        """As `SyncPool.register_lora`."""
        workers = await self._workers()
        await asyncio.to_thread(self._loras.register, workers.any, name, path)

    async def unregister_lora(self, name: str) -> None:
        """As `SyncPool.unregister_lora`."""
        self._loras.unregister(name)

    async def list_loras(self) -> list[str]:
        """As `SyncPool.list_loras`."""
        return self._loras.names()

    async def get_model_info(self) -> ModelInfo:
        """As `SyncPool.get_model_info`."""
        return self._model_info(await self._workers())

    async def stop(self) -> None:
        """As `SyncPool.stop`; a pool that is still loading is waited for."""
        await asyncio.to_thread(self._stop)

    async def _workers(self) -> Workers:
        self._check_running()
        return await asyncio.wrap_future(self._starting)
