"""What physics allows a step: bytes through the card's memory, or operations through its tensor cores."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from benchmarks.card import Card
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.transformer import Transformer
from voxcpm_core.model.voxcpm import VoxCPMModel


class StepLimit(NamedTuple):
    """Least ms of the parts of a step, each alone. The VAE is not in it."""

    solve_ms: float
    feed_back_ms: float  # local encoder and language models

    @property
    def total_ms(self) -> float:
        return self.solve_ms + self.feed_back_ms


def step_limit(model: VoxCPMModel, num_streams: int, context: int, num_steps: int, card: Card) -> StepLimit:
    """`context`: positions in the cache of each stream. Counts the stacks of blocks alone, with all tokens."""
    config = model.config
    dit, encoder = num_weights(model.dit.stack), num_weights(model.local_encoder.stack)
    language = num_weights(model.language_model.base) + num_weights(model.language_model.residual)
    evaluations = model.dit.num_evaluations(num_steps)
    dit_rows = 2 * (config.mu_tokens + 1 + 2 * config.patch_size)
    cache_bytes = num_streams * context * KvCache.page_bytes(config, 1, model.dtype)
    solve_ms = _least_ms(
        evaluations * weight_bytes(model.dit.stack), evaluations * 2 * dit * dit_rows * num_streams, card
    )
    read_bytes = _language_bytes(model) + weight_bytes(model.local_encoder.stack) + cache_bytes
    operations = 2 * num_streams * (language + encoder * (1 + config.patch_size))
    return StepLimit(solve_ms, _least_ms(read_bytes, operations, card))


def prefill_limit_ms(model: VoxCPMModel, num_positions: int, card: Card) -> float:
    """Of so many positions in all."""
    weights = num_weights(model.language_model.base) + num_weights(model.language_model.residual)
    return _least_ms(_language_bytes(model), 2 * weights * num_positions, card)


def num_weights(stack: Transformer) -> int:
    return sum(weight.numel() for weight in _weights(stack))


def weight_bytes(stack: Transformer) -> int:
    return sum(weight.nbytes for weight in _weights(stack))


def _weights(stack: Transformer) -> list[Tensor]:
    products = (product for layer in stack.layers for product in (layer.qkv, layer.o, layer.gate_up, layer.down))
    return [product.weight for product in products]


def _language_bytes(model: VoxCPMModel) -> int:
    return weight_bytes(model.language_model.base) + weight_bytes(model.language_model.residual)


def _least_ms(num_bytes: float, num_operations: float, card: Card) -> float:
    return max(num_bytes / card.gb_per_s / 1e6, num_operations / card.tf_per_s / 1e9)
