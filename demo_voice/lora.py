"""A low-rank adapter in training: on every attention projection of both language models and the DiT."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from voxcpm_core.checkpoint.lora import LoraAdapter, LoraPair
from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.checkpoint.write import atomic_path
from voxcpm_core.config import ModelConfig
from voxcpm_core.lora.folder import CONFIG_FILE, WEIGHT_FILES

WEIGHTS_FILE = WEIGHT_FILES[0]
RANK, ALPHA = 8, 16
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
_PREFIXES = ("base_lm.", "residual_lm.", "feat_decoder.estimator.")


def new_adapter(config: ModelConfig, device: torch.device, generator: torch.Generator) -> LoraAdapter:
    """An adapter whose float32 pairs take gradients and that changes nothing yet."""
    pairs = {}
    for name, shape in main_shapes(config).items():
        layer = name.removesuffix(".weight")
        if layer.startswith(_PREFIXES) and layer.endswith(TARGETS):
            rows, columns = shape
            a = torch.randn(RANK, columns, generator=generator) * columns**-0.5
            b = torch.zeros(rows, RANK)
            pairs[layer] = LoraPair(a.to(device).requires_grad_(), b.to(device).requires_grad_())
    return LoraAdapter(RANK, ALPHA, pairs)


def adapter_parameters(adapter: LoraAdapter) -> list[Tensor]:
    return [tensor for pair in adapter.pairs.values() for tensor in (pair.a, pair.b)]


def write_adapter(folder: Path, adapter: LoraAdapter, base_model: str) -> None:
    """Write the folder that `read_lora` and the official package read, in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for layer, pair in adapter.pairs.items():
        for letter, tensor in (("A", pair.a), ("B", pair.b)):
            tensors[f"{layer}.lora_{letter}"] = tensor.detach().to("cpu", torch.bfloat16).contiguous()
    with atomic_path(folder / WEIGHTS_FILE) as partial:
        save_file(tensors, partial, metadata={"format": "pt"})
    settings = {
        "enable_lm": True, "enable_dit": True, "enable_proj": False, "r": adapter.rank, "alpha": adapter.alpha,
        "dropout": 0.0, "target_modules_lm": list(TARGETS), "target_modules_dit": list(TARGETS),
        "target_proj_modules": [],
    }
    values = {"base_model": base_model, "lora_config": settings}
    with atomic_path(folder / CONFIG_FILE) as partial:
        partial.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
