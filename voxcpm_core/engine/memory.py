"""How a GPU's memory is shared out: what the engine takes besides is known before KV pages are counted."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import torch

from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.engine.host_memory import require_host_memory
from voxcpm_core.errors import ConfigError
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.runner import Runner
from voxcpm_core.scheduler import pages_for
from voxcpm_core.scheduler.sizing import MIB, WORKSPACE_MIB, check_share, free_kv_bytes, num_kv_pages

CPU_KV_CACHE_MIB = 1024
MIN_TRIAL_PAGES = 1


@dataclass(frozen=True)
class MemoryPlan:
    """What the parts of an engine take on its device, in bytes; 0 for what nobody counts on the CPU."""

    weight_bytes: int
    state_bytes: int  # of the streams' slots, the VAE decoder's above all
    graph_bytes: int  # CUDA graphs, with what they read and write; 0 where kv_cache_mib decides and nobody asks
    voice_bytes: int  # at most, of latents and embeddings kept of prompts and references
    num_pages: int
    page_bytes: int
    workspace_bytes: int

    def __str__(self) -> str:
        parts = {
            "weights": self.weight_bytes, "slots": self.state_bytes, "graphs": self.graph_bytes,
            "voices": self.voice_bytes,
            "KV pages": self.num_pages * self.page_bytes, "workspace": self.workspace_bytes,
        }  # fmt: skip
        return ", ".join(f"{name} {num_bytes / MIB:.0f} MiB" for name, num_bytes in parts.items() if num_bytes)


def plan_memory(
    config: EngineConfig, model: ModelConfig, device: torch.device, dtype: torch.dtype, state_bytes: int,
    make_trial: Callable[[int], Runner],
) -> MemoryPlan:
    """Decide on the number of KV pages once the weights are loaded.

    `make_trial` makes a runner with so many pages, whose graphs are measured and thrown away. Raises ConfigError when
    the GPU's share, or the machine's memory, cannot hold the least number of pages.
    """
    page_bytes = KvCache.page_bytes(model, config.kv_page_size, dtype)
    pages_per_request = pages_for(config.num_positions(model), config.kv_page_size)
    on_gpu = device.type == "cuda"
    weight_bytes = torch.cuda.memory_allocated(device) if on_gpu else 0
    workspace_bytes = WORKSPACE_MIB * MIB if on_gpu else 0
    graph_bytes, voice_bytes = 0, config.voice_cache_mib * MIB
    if config.kv_cache_mib:
        budget_bytes = config.kv_cache_mib * MIB
    elif on_gpu:
        if config.cuda_graphs == "on":
            graph_bytes = max(0, _bytes_beside_pages(make_trial) - state_bytes)
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        share, planned_bytes = config.gpu_memory_utilization, state_bytes + graph_bytes + voice_bytes
        budget_bytes = free_kv_bytes(total_bytes, free_bytes, weight_bytes, planned_bytes, share)
        check_share(budget_bytes, page_bytes, pages_per_request, share)
    else:
        budget_bytes = CPU_KV_CACHE_MIB * MIB
    num_pages = num_kv_pages(budget_bytes, page_bytes, pages_per_request, config.max_running)
    if device.type == "cpu":
        require_host_memory({
            "max_running": state_bytes, "kv_cache_mib, max_model_len and page_size": num_pages * page_bytes,
        })  # fmt: skip
    return MemoryPlan(
        weight_bytes, state_bytes, graph_bytes, voice_bytes, num_pages, page_bytes, workspace_bytes
    )


@torch.inference_mode()
def _bytes_beside_pages(make_trial: Callable[[int], Runner]) -> int:
    """All that a runner takes beside its pages, as far as it is seen in the graphs of the largest batches."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    try:
        trial = make_trial(MIN_TRIAL_PAGES)
        assert trial.graphs is not None
        driver_bytes = trial.graphs.driver_bytes()
    except torch.cuda.OutOfMemoryError as error:
        raise ConfigError(f"max_running: the CUDA graphs of so many streams do not fit into memory: {error}") from None
    taken = torch.cuda.memory_reserved() - before + driver_bytes
    del trial
    gc.collect()
    torch.cuda.empty_cache()
    return taken
