"""How a checkpoint is served. One table of settings, from config.pbtxt parameters or VOXCPM_* variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from voxcpm_core.config.loras import listed_loras
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.config.settings import given_settings
from voxcpm_core.errors import ConfigError, shown

_RANGES = {"max_running": (1, 4096), "max_timesteps": (2, 1000), "max_loras": (0, 32), "max_lora_rank": (1, 64)}
PAGE_SIZES = {"triton": 16, "flash": 256}  # by `attention`; FlashAttention 2 takes multiples of its alone

@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine. Each is also `VOXCPM_<NAME>` in the environment, which wins."""

    model: str = ""  # checkpoint folder, Hugging Face id, or "demo"
    checksums: str = ""  # file as `sha256sum` writes it, which the checkpoint's files must agree with; "": unchecked
    device: str = ""  # "cuda:0", "cpu"; "": Triton's choice, else cuda when there is one
    dtype: str = ""  # "float32" or "bfloat16"; "": the checkpoint's on CUDA, float32 on the CPU
    weights: str = "dtype"  # as `dtype` says, or "fp8": those of the blocks' products in 8 bits
    max_running: int = 64  # streams that are generated at once
    max_waiting: int = 8  # requests held in the engine's own FIFO; the rest waits in Triton's queue
    max_model_len: int = 4096  # LM positions of one request, prefill included
    max_text_tokens: int = 1000  # prompt text and target text together
    max_timesteps: int = 30  # upper limit of inference_timesteps
    max_prefill_tokens: int = 2048  # positions prefilled in one step, so that running streams are not held up
    max_audio_seconds: int = 60  # of a prompt or reference
    voices: str = ""  # folder of registered voices, which every replica may share; "": none are kept
    max_voices: int = 1000  # in that folder
    max_voices_mib: int = 1024  # of that folder
    voice_cache_mib: int = 256  # of what the device keeps of prompts and references for their next use; 0: nothing
    lora_root: str = ""  # folder that holds all adapters, which every replica may share; "": none are served
    loras: str = ""  # adapters that are registered when the model starts: "name=folder, other=hf://owner/name@sha256"
    max_loras: int = 4  # adapters on the device at once; 0: none are served
    max_lora_rank: int = 32  # of an adapter; room for it is kept in every slot
    lora_mlp: str = "off"  # "on": adapters may also change the feed-forward layers, which takes room in every slot
    page_size: int = 0  # LM positions per KV page; 0: as `attention` has it, 16 or 256
    gpu_memory_utilization: float = 0.9  # share of the GPU's memory that the engine may use, weights included
    kv_cache_mib: int = 0  # memory for KV pages; 0: what the share above leaves on CUDA, 1 GiB on the CPU
    attention: str = "triton"  # over KV pages, on CUDA devices: our own kernel, or "flash", FlashAttention 2
    cuda_graphs: str = "on"  # steps and prefixes as CUDA graphs, on CUDA devices
    run_ahead: str = "auto"  # launch step n+1 before collecting step n: "on", "off", "auto" (on for CUDA)
    trace_url: str = ""  # where a collector takes OTLP over HTTP: spans of the requests that Triton traces go there
    allowed_parameters: str = ""  # comma-separated request parameters that are let through unread

    def __post_init__(self) -> None:
        for name in ("max_waiting", "max_model_len", "max_text_tokens", "max_prefill_tokens",
                     "max_audio_seconds", "max_voices", "max_voices_mib"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected an integer >= 1, got {getattr(self, name)}")
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{name}: expected an integer from {least} to {most}, got {getattr(self, name)}")
        if listed_loras(self.loras) and not self.num_lora_slots:
            raise ConfigError("loras: adapters are listed, but lora_root is not set, or max_loras is 0")
        if not 0.0 < self.gpu_memory_utilization <= 1.0:
            raise ConfigError(
                f"gpu_memory_utilization: expected a number above 0, at most 1, got {self.gpu_memory_utilization}"
            )
        for name in ("voice_cache_mib", "kv_cache_mib", "page_size"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}: expected an integer >= 0, got {getattr(self, name)}")
        if self.dtype not in ("", "float32", "bfloat16"):
            raise ConfigError(f"dtype: expected 'float32' or 'bfloat16', got {shown(self.dtype)}")
        if self.weights not in ("dtype", "fp8"):
            raise ConfigError(f"weights: expected 'dtype' or 'fp8', got {shown(self.weights)}")
        if self.attention not in PAGE_SIZES:
            raise ConfigError(f"attention: expected 'triton' or 'flash', got {shown(self.attention)}")
        if self.attention == "flash" and self.page_size % PAGE_SIZES["flash"]:
            raise ConfigError(
                f"page_size: attention 'flash' takes multiples of {PAGE_SIZES['flash']}, got {self.page_size}; "
                "0 is the right one"
            )
        if self.cuda_graphs not in ("on", "off"):
            raise ConfigError(f"cuda_graphs: expected 'on' or 'off', got {shown(self.cuda_graphs)}")
        if self.lora_mlp not in ("on", "off"):
            raise ConfigError(f"lora_mlp: expected 'on' or 'off', got {shown(self.lora_mlp)}")
        if self.run_ahead not in ("on", "off", "auto"):
            raise ConfigError(f"run_ahead: expected 'on', 'off' or 'auto', got {shown(self.run_ahead)}")

    def num_positions(self, model: ModelConfig) -> int:
        """LM positions that one request may take: the setting, bounded by what the checkpoint was made for."""
        rope = model.base_lm.rope
        return min(self.max_model_len, model.max_length, *((rope.max_positions,) if rope else ()))

    @property
    def kv_page_size(self) -> int:
        """LM positions of a KV page."""
        return self.page_size or PAGE_SIZES[self.attention]

    @property
    def num_lora_slots(self) -> int:
        """Adapters that a device holds at once."""
        return self.max_loras if self.lora_root else 0

    @classmethod
    def from_settings(cls, parameters: Mapping[str, str], environ: Mapping[str, str]) -> EngineConfig:
        """Merge config.pbtxt `parameters` with the environment; unknown parameters are errors."""
        return cls(**given_settings(cls, parameters, environ))
