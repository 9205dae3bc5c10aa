"""From settings to a warm engine: locate, load, size the cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import torch

from voxcpm_core.checkpoint.checksums import verify_checksums
from voxcpm_core.checkpoint.opened import OpenedCheckpoint
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.dtypes import TORCH_DTYPES
from voxcpm_core.engine.core import EngineCore
from voxcpm_core.engine.host_memory import require_host_memory
from voxcpm_core.engine.memory import plan_memory
from voxcpm_core.engine.warm_up import warm_up
from voxcpm_core.errors import ConfigError, shown
from voxcpm_core.kernels.flash_attention import flash_paged_attention
from voxcpm_core.kernels.kernel_set import KernelSet, torch_kernels, triton_kernels
from voxcpm_core.lora.layout import LoraLayout
from voxcpm_core.lora.library import LoraLibrary
from voxcpm_core.lora.pool import LoraPool
from voxcpm_core.lora.slots import LoraSlots
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.paths import as_path
from voxcpm_core.runner import Runner
from voxcpm_core.runner.noise import NoiseSource
from voxcpm_core.runner.runner import slot_state_bytes
from voxcpm_core.runner.sizes import RunnerSizes
from voxcpm_core.runner.transfer import HostArena
from voxcpm_core.scheduler import PagePool, Scheduler, SlotPool
from voxcpm_core.scheduler.sizing import MIB, check_page_size
from voxcpm_core.types import SamplingParams
from voxcpm_core.vae import VaeDecoder, VaeEncoder

MIN_CAPABILITY = 8  # its first number; what kernels are compiled for in the tests
log = logging.getLogger(__name__)


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
    check_page_size(config.page_size, num_positions)
    use_graphs = config.cuda_graphs == "on" and device.type == "cuda"
    if use_graphs:
        _require_capability(*torch.cuda.get_device_capability(device))
    flash = config.attention == "flash"
    attention = flash_paged_attention(device, dtype, model_config.base_lm.head_dim) if flash else None
    kernels = triton_kernels(device, attention) if use_graphs else torch_kernels(attention)
    if config.checksums:
        verify_checksums(folder, as_path(config.checksums))
    tensors = read_tensors(folder, model_config)
    lora, loras = _adapters(config, model_config, device, dtype, kernels)
    model = VoxCPMModel.load(
        model_config, tensors, device, dtype, num_positions, kernels.layer_ops, lora, fp8=config.weights == "fp8"
    )
    vae_tensors = read_vae_tensors(folder, model_config)
    encoder = kernels.vae_encoder(VaeEncoder.from_tensors(model_config.vae, vae_tensors, device))
    decoder = kernels.vae_decoder(VaeDecoder.from_tensors(model_config.vae, vae_tensors, device))
    sizes = RunnerSizes(
        num_slots=config.max_running, num_pages=0, page_size=config.kv_page_size, max_positions=num_positions,
        num_steps=SamplingParams().inference_timesteps, max_steps=config.max_timesteps,
    )  # fmt: skip

    def make_runner(num_pages: int) -> Runner:
        return Runner(
            model, encoder, decoder, sizes._replace(num_pages=num_pages), kernels=kernels, use_graphs=use_graphs,
            noise=noise, arena=arena, voice_cache_bytes=config.voice_cache_mib * MIB,
        )

    state_bytes = slot_state_bytes(model_config, sizes, decoder.state_size, dtype)
    memory = plan_memory(config, model_config, device, dtype, state_bytes, make_runner)
    log.info("engine on %s, %s, %d KV pages of %d positions", device, dtype, memory.num_pages, config.kv_page_size)
    log.info("memory: %s", memory)
    runner = make_runner(memory.num_pages)
    scheduler = Scheduler(
        SlotPool(config.max_running), PagePool(memory.num_pages, config.kv_page_size), config.max_prefill_tokens,
        LoraPool(config.num_lora_slots), max_kept_pages=config.voice_cache_mib * MIB // memory.page_bytes,
    )
    run_ahead = config.run_ahead == "on" or (config.run_ahead == "auto" and device.type == "cuda")
    return EngineCore(scheduler, runner, config.max_running, run_ahead, memory, loras)


def _adapters(
    config: EngineConfig, model: ModelConfig, device: torch.device, dtype: torch.dtype, kernels: KernelSet
) -> tuple[LoraSlots | None, LoraLibrary | None]:
    """The slots on the device and what fills them, where adapters are served."""
    if not config.num_lora_slots:
        return None, None
    if not as_path(config.lora_root).is_dir():
        raise ConfigError(f"lora_root: there is no folder {config.lora_root}")
    layout = LoraLayout.of(model, config.max_lora_rank, config.lora_mlp == "on")
    if device.type == "cpu":
        num_bytes = config.num_lora_slots * layout.num_values * dtype.itemsize
        require_host_memory({"max_loras, max_lora_rank and lora_mlp": num_bytes})
    slots = LoraSlots(layout, config.num_lora_slots, device, dtype, kernels.lora)
    return slots, LoraLibrary(config.lora_root, config.max_lora_rank, model, layout, device, dtype)


def _require_capability(major: int, minor: int) -> None:
    if major < MIN_CAPABILITY:
        raise ConfigError(
            f"cuda_graphs: its kernels need a GPU of compute capability {MIN_CAPABILITY}.0 or more, and this one has "
            f"{major}.{minor}; set it to off"
        )


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
