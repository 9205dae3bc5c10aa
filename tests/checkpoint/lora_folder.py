"""Makes LoRA folders with random weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.config import ModelConfig

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
PROJECTIONS = ("enc_to_lm_proj", "lm_to_dit_proj", "res_to_dit_proj", "fusion_concat_proj")
ADAPTED_STACKS = ("base_lm.", "residual_lm.", "feat_decoder.estimator.")


def make_lora(
    out: Path, config: ModelConfig, r: int = 4, alpha: float = 8, seed: int = 0, format: str = "safetensors",
    names: tuple[str, ...] = ATTENTION,
) -> None:
    """An adapter of every layer that the official package wraps for these names; `format`: "safetensors" or "ckpt"."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in main_shapes(config).items():
        layer = name.removesuffix(".weight")
        in_stack = layer.startswith(ADAPTED_STACKS) and layer.rpartition(".")[2] in names
        if layer != name and (in_stack or layer in PROJECTIONS):
            rows, columns = shape
            tensors[f"{layer}.lora_A"] = torch.randn(r, columns, generator=generator) / math.sqrt(columns)
            tensors[f"{layer}.lora_B"] = 0.3 * torch.randn(rows, r, generator=generator)
    out.mkdir(parents=True, exist_ok=True)
    if format == "safetensors":
        save_file(tensors, out / "lora_weights.safetensors")
    else:
        torch.save({"state_dict": tensors}, out / "lora_weights.ckpt")
    projections = [name for name in PROJECTIONS if f"{name}.lora_A" in tensors]
    settings = {
        "enable_lm": True, "enable_dit": True, "enable_proj": True, "r": r, "alpha": alpha, "dropout": 0.0,
        "target_modules_lm": names, "target_modules_dit": names, "target_proj_modules": projections,
    }
    (out / "lora_config.json").write_text(json.dumps({"base_model": None, "lora_config": settings}))
