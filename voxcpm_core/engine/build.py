"""From settings to a warm engine: locate, load, size the cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import torch

from voxcpm_core.checkpoint.opened import OpenedCheckpoint
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.dtypes import TORCH_DTYPES
from voxcpm_core.engine.core import EngineCore
from voxcpm_core.engine.warm_up import warm_up
from voxcpm_core.errors import ConfigError, shown
from voxcpm_core.kernels.kernel_set import TORCH_KERNELS, triton_kernels
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.runner import Runner
from voxcpm_core.runner.noise import NoiseSource
from voxcpm_core.runner.transfer import HostArena
from voxcpm_core.scheduler import PagePool, Scheduler, SlotPool, pages_for
from voxcpm_core.scheduler.sizing import check_share, free_kv_bytes, num_kv_pages
from voxcpm_core.vae import VaeDecoder, VaeEncoder

log = logging.getLogger(__name__)

CPU_KV_CACHE_MIB = 1024


def build_warm_core(
    config: EngineConfig, checkpoint: OpenedCheckpoint, device: str,
    make_arena: Callable[[torch.device], HostArena | None] = lambda device: None,
) -> EngineCore:
    """A loaded engine on `device` that has generated in every mode; `make_arena` says where the outputs of steps go.

    Raises StartupError, a ConfigError or CheckpointError where one setting or file is to blame.
    """
    torch_device = _device(device)
    core = build_core(config, checkpoint.model, checkpoint.folder, torch_device, arena=make_arena(torch_device))
    warm_up(core, checkpoint.model, config, checkpoint.tokenizer)
    return core


def build_core(
    config: EngineConfig, model_config: ModelConfig, folder: Path, device: torch.device,
    noise: NoiseSource | None = None, arena: HostArena | None = None,
) -> EngineCore:
    """Everything but the thread; tests drive it step by step, with recorded noise."""
    # By default cuDNN rounds fp32 convolutions to TF32, which would move the VAE's audio audibly far from fp32.
    torch.backends.cudnn.allow_tf32 = False
    dtype = _dtype(config, model_config, device)
    num_positions = config.num_positions(model_config)
    use_graphs = config.cuda_graphs == "on" and device.type == "cuda"
    tensors = read_tensors(folder, model_config)
    kernels = triton_kernels(device) if use_graphs else TORCH_KERNELS
    model = VoxCPMModel.load(model_config, tensors, device, dtype, num_positions, kernels.layer_ops)
    vae_tensors = read_vae_tensors(folder, model_config)
    encoder = VaeEncoder.from_tensors(model_config.vae, vae_tensors, device)
    decoder = kernels.vae_decoder(VaeDecoder.from_tensors(model_config.vae, vae_tensors, device))
    num_pages = _num_pages(config, model_config, device, dtype)
    log.info("engine on %s, %s, %d KV pages of %d positions", device, dtype, num_pages, config.page_size)
    runner = Runner(
        model, encoder, decoder, num_slots=config.max_running, num_pages=num_pages, page_size=config.page_size,
        max_positions=num_positions, kernels=kernels, use_graphs=use_graphs, noise=noise, arena=arena,
    )
    scheduler = Scheduler(
        SlotPool(config.max_running), PagePool(num_pages, config.page_size), config.max_prefill_tokens
    )
    run_ahead = config.run_ahead == "on" or (config.run_ahead == "auto" and device.type == "cuda")
    return EngineCore(scheduler, runner, config.max_running, run_ahead)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device: expected 'cpu' or 'cuda:N', got {shown(name)}") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device: expected 'cpu' or 'cuda:N', got {shown(name)}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        among = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
        raise ConfigError(
            f"device: {shown(name)} is not there; torch sees {torch.cuda.device_count()} CUDA devices{among}"
        )
    return device


def _dtype(config: EngineConfig, model: ModelConfig, device: torch.device) -> torch.dtype:
    return TORCH_DTYPES[config.dtype or (model.dtype if device.type == "cuda" else "float32")]


def _num_pages(config: EngineConfig, model: ModelConfig, device: torch.device, dtype: torch.dtype) -> int:
    """As many pages as the memory allows: at least two full-length requests, at most all slots full."""
    page_bytes = KvCache.page_bytes(model, config.page_size, dtype)
    pages_per_request = pages_for(config.num_positions(model), config.page_size)
    if config.kv_cache_mib:
        budget = config.kv_cache_mib * 2**20
    elif device.type == "cuda":
        free_bytes, total_bytes = torch.cuda.mem_get_info(device)
        share = config.gpu_memory_utilization
        budget = free_kv_bytes(total_bytes, free_bytes, torch.cuda.memory_allocated(device), share)
        check_share(budget, page_bytes, pages_per_request, share)
    else:
        budget = CPU_KV_CACHE_MIB * 2**20
    return num_kv_pages(budget, page_bytes, pages_per_request, config.max_running)
