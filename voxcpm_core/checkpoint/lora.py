"""LoRA adapters: reading a folder strictly, and merging it into the weights.

An adapted linear layer computes `W x + b + (alpha / r) B (A x)`, with A `[r, in]` and B `[out, r]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from voxcpm_core.checkpoint.files import StoredTensor, open_pickle, open_safetensors
from voxcpm_core.checkpoint.load import read_json
from voxcpm_core.checkpoint.shapes import main_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.config.fields import Fields
from voxcpm_core.errors import CheckpointError, ConfigError
from voxcpm_core.lora.folder import CONFIG_FILE, WEIGHT_FILES

_OPENERS = dict(zip(WEIGHT_FILES, (open_safetensors, open_pickle), strict=True))
_LM_PREFIXES = ("base_lm.layers.", "residual_lm.layers.")
_DIT_PREFIX = "feat_decoder.estimator."
PROJECTIONS = ("enc_to_lm_proj", "lm_to_dit_proj", "res_to_dit_proj", "fusion_concat_proj")


@dataclass(frozen=True)
class LoraPair:
    """The adapter of one linear layer."""

    a: torch.Tensor  # [r, in]
    b: torch.Tensor  # [out, r]


@dataclass(frozen=True)
class LoraAdapter:
    """An adapter in memory; `pairs` go by the layer's name without `.weight`."""

    rank: int
    alpha: float
    pairs: Mapping[str, LoraPair]

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def read_lora(folder: Path, config: ModelConfig, max_rank: int | None = None) -> LoraAdapter:
    """Read an adapter made for a model of `config`.

    Raises ConfigError for a lora_config.json that cannot be used or has a rank above `max_rank`, and CheckpointError
    naming the file and the tensor that is unknown to the model, misshapen, or without its counterpart.
    """
    rank, alpha = _read_config(folder / CONFIG_FILE)
    if max_rank is not None and rank > max_rank:
        raise ConfigError(f"{folder / CONFIG_FILE}: lora_config.r is {rank}, at most {max_rank} is served")
    for name, opener in _OPENERS.items():
        path = folder / name
        if path.is_file():
            return LoraAdapter(rank, alpha, _read_pairs(path, opener(path), config, rank))
    raise CheckpointError(f"{folder}: none of {', '.join(WEIGHT_FILES)} is there")


def _read_config(path: Path) -> tuple[int, float]:
    values = read_json(path, "rank and alpha stand there")
    if not isinstance(values, dict) or not isinstance(values.get("lora_config"), dict):
        form = '{"lora_config": {"r": 8, "alpha": 16, ...}}'
        raise ConfigError(f"{path}: does not say the adapter's rank r and its alpha; the official layout is {form}")
    settings = Fields(values["lora_config"], f"{path}: lora_config")
    return settings.integer("r"), settings.number("alpha")


def _read_pairs(
    path: Path, stored: dict[str, StoredTensor], config: ModelConfig, rank: int
) -> dict[str, LoraPair]:
    shapes = main_shapes(config)
    expected: dict[str, tuple[int, ...]] = {}
    for name in stored:
        layer = name.removesuffix(".lora_A").removesuffix(".lora_B")
        if layer == name or not _can_be_adapted(layer, shapes.get(f"{layer}.weight", ())):
            raise CheckpointError(f"{path}: tensor {name} adapts nothing of this model")
        rows, columns = shapes[f"{layer}.weight"]
        expected |= {f"{layer}.lora_A": (rank, columns), f"{layer}.lora_B": (rows, rank)}
    if not expected:
        raise CheckpointError(f"{path}: holds no tensors")
    for name, shape in expected.items():
        if name not in stored:
            raise CheckpointError(f"{path}: tensor {name} of shape {shape} is missing")
        if stored[name].shape != shape:
            raise CheckpointError(f"{path}: tensor {name} has shape {stored[name].shape}, expected {shape}")
        if not stored[name].is_float:
            raise CheckpointError(f"{path}: tensor {name} has the unsupported type {stored[name].dtype}")
    layers = dict.fromkeys(name.rpartition(".")[0] for name in expected)
    return {name: LoraPair(stored[f"{name}.lora_A"].load(), stored[f"{name}.lora_B"].load()) for name in layers}


def _can_be_adapted(layer: str, shape: tuple[int, ...]) -> bool:
    """Linear layers of the language models and the DiT, and the projections between them; nothing else is trained."""
    return len(shape) == 2 and (layer.startswith((*_LM_PREFIXES, _DIT_PREFIX)) or layer in PROJECTIONS)


class MergedTensors(Mapping[str, torch.Tensor]):
    """The main tensors with an adapter added: `W + (alpha / r) B A`, computed in float32 on access, in W's dtype."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], adapter: LoraAdapter) -> None:
        self._tensors = tensors
        self._adapter = adapter

    def __getitem__(self, name: str) -> torch.Tensor:
        weight = self._tensors[name]
        pair = self._adapter.pairs.get(name.removesuffix(".weight")) if name.endswith(".weight") else None
        if pair is None:
            return weight
        update = self._adapter.scale * (pair.b.float() @ pair.a.float())
        return (weight.float() + update.to(weight.device)).to(weight.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def merge_lora(tensors: Mapping[str, torch.Tensor], adapter: LoraAdapter) -> Mapping[str, torch.Tensor]:
    """`tensors` with the adapter merged in; a layer that they lack raises CheckpointError."""
    for layer in adapter.pairs:
        if f"{layer}.weight" not in tensors:
            raise CheckpointError(f"the adapter changes {layer}, which the checkpoint lacks")
    return MergedTensors(tensors, adapter)
