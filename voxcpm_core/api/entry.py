"""`VoxCPM.from_pretrained`, the one entry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from voxcpm_core.api.async_pool import AsyncPool
from voxcpm_core.api.settings import pool_settings
from voxcpm_core.api.sync_pool import SyncPool
from voxcpm_core.config.engine import EngineConfig

_DEFAULTS = EngineConfig()


class VoxCPM:
    """Makes pools of engine workers; named as in the packages whose programs run on it."""

    @staticmethod
    def from_pretrained(
        model: str,
        inference_timesteps: int = 10,
        max_num_batched_tokens: int = _DEFAULTS.max_prefill_tokens,
        max_num_seqs: int = _DEFAULTS.max_running,
        max_model_len: int = _DEFAULTS.max_model_len,
        gpu_memory_utilization: float = _DEFAULTS.gpu_memory_utilization,
        enforce_eager: bool = False,
        devices: Sequence[int | str] = (0,),
        lora_config: object = None,
        dtype: object = None,
        **settings: object,
    ) -> SyncPool | AsyncPool:
        """A pool with one worker process per device, `SyncPool` outside a running event loop, `AsyncPool` inside one.

        model: checkpoint folder, Hugging Face id, or "demo". inference_timesteps: of requests that name none.
        max_num_batched_tokens: positions prefilled in one step. max_num_seqs: streams generated at once by a worker;
        more wait in order. max_model_len: positions of one request, prompt included. gpu_memory_utilization: share of
        the GPU's memory that a worker may use. enforce_eager: no CUDA graphs. devices: numbers of
        CUDA devices, or names such as "cuda:1" and "cpu"; empty means [0]. lora_config: must be None; the settings
        lora_root, max_loras and max_lora_rank stand in its place. dtype: "float32" or "bfloat16"; None is the
        checkpoint's own on CUDA and float32 on the CPU. `settings`: any other setting of docs/operating.md by its name.

        A SyncPool is returned when its workers are ready; an AsyncPool at once, and everything it does waits for them.
        Raises StartupError (ConfigError, CheckpointError) naming the argument or file to change: for arguments here,
        for what the workers find here (SyncPool) or where the AsyncPool is first awaited.
        """
        chosen = pool_settings(
            model,
            inference_timesteps=inference_timesteps,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            gpu_memory_utilization=gpu_memory_utilization,
            enforce_eager=enforce_eager,
            devices=devices,
            lora_config=lora_config,
            dtype=dtype,
            settings=settings,
        )
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return SyncPool(chosen)
        return AsyncPool(chosen)
