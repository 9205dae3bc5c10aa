"""The stacks of the released models as decode steps run them, with random weights and inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.checkpoint.releases import RELEASES, release_config
from voxcpm_core.config import ModelConfig, TransformerConfig
from voxcpm_core.kernels.block import LayerWeights
from voxcpm_core.kernels.layer_ops import LayerOps, TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.stack_plan import MAX_ROWS, StackShape
from voxcpm_core.model.kv_cache import PagedCacheAttention
from voxcpm_core.model.rope import RopeTable
from voxcpm_core.model.transformer import Attention, LocalAttention, Transformer

BATCHES = (1, 2, 4, 8, 16, 32, 64)  # streams
CONTEXT, PAGE_SIZE = 300, 16  # positions of each stream


class Case(NamedTuple):
    """One stack."""

    name: str
    config: TransformerConfig
    num_tokens: int  # as in StackShape
    sequences: int  # of a stream
    kept: tuple[int | None, int | None]  # tokens of a sequence, from and to

    def shape(self, dtype: str = "bfloat16") -> StackShape:
        return StackShape.of(self.config, self.num_tokens, dtype)

    def num_rows(self, batch: int) -> int:
        """Of so many streams."""
        return batch * self.sequences * max(self.num_tokens, 1)

    @property
    def batches(self) -> list[int]:
        return [batch for batch in BATCHES if self.num_rows(batch) <= MAX_ROWS]


def release_cases() -> list[Case]:
    """One of each shape."""
    cases: dict[StackShape, Case] = {}
    for generation in RELEASES:
        for case in _model_cases(generation):
            cases.setdefault(case.shape(), case)
    return list(cases.values())


def _model_cases(generation: str) -> Iterator[Case]:
    config = ModelConfig.from_json(release_config(generation))
    patch = config.patch_size
    yield Case(f"{generation} DiT", config.dit, 1 + config.mu_tokens + 2 * patch, 2, (-patch, None))
    yield Case(f"{generation} base LM", config.base_lm, 0, 1, (None, None))
    yield Case(f"{generation} local encoder", config.local_encoder, 1 + patch, 1, (0, 1))


class StackInputs:
    """A stack with random weights on a device; `num_layers`: other than its own."""

    def __init__(
        self, case: Case, device: torch.device, num_layers: int | None = None, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        config = dataclasses.replace(case.config, num_layers=num_layers or case.config.num_layers)
        self.case, self.config, self._device, self._dtype = case, config, device, dtype
        self._layers = [self._layer() for _ in range(config.num_layers)]
        self._norm = self._norm_weight()

    def _randn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self._device, dtype=self._dtype)

    def _norm_weight(self) -> Tensor:
        return 1.0 + 0.1 * self._randn(self.config.hidden_size)

    def _layer(self) -> LayerWeights:
        config = self.config

        def linear(n: int, k: int) -> Linear:
            return Linear(self._randn(n, k) * k**-0.5)

        return LayerWeights(
            input_norm=self._norm_weight(), qkv=linear(config.q_size + 2 * config.kv_size, config.hidden_size),
            o=linear(config.hidden_size, config.q_size), post_norm=self._norm_weight(),
            gate_up=linear(2 * config.ffn_size, config.hidden_size), down=linear(config.hidden_size, config.ffn_size),
        )  # fmt: skip

    def stack(self, ops: LayerOps) -> Transformer:
        return Transformer(self.config, self._layers, self._norm, self._rope(), ops)

    def exact(self) -> Transformer:
        """In torch and float64."""
        layers = [
            LayerWeights(
                input_norm=layer.input_norm.double(), post_norm=layer.post_norm.double(),
                **{name: Linear(getattr(layer, name).weight.double()) for name in ("qkv", "o", "gate_up", "down")},
            )
            for layer in self._layers
        ]  # fmt: skip
        return Transformer(self.config, layers, self._norm.double(), self._rope(), TorchLayerOps())

    def _rope(self) -> RopeTable | None:
        return self.config.rope and RopeTable(self.config.rope, CONTEXT + 1, self._device, self._dtype)

    def x(self, batch: int) -> Tensor:
        """[B, T, hidden]"""
        return self._randn(batch * self.case.sequences, max(self.case.num_tokens, 1), self.config.hidden_size)

    def attention(self, batch: int) -> Attention:
        """Over pages, each stream in pages of its own: the next position of CONTEXT."""
        if self.case.num_tokens:
            return LocalAttention(self.case.num_tokens, self._device)
        config, max_pages = self.config, -(-(CONTEXT + 1) // PAGE_SIZE)
        pages = self._randn(
            config.num_layers, 2, batch * max_pages, PAGE_SIZE, config.num_kv_heads, config.head_dim
        )
        table = torch.randperm(batch * max_pages, device=self._device).view(batch, max_pages)
        positions = torch.full((batch, 1), CONTEXT, device=self._device)
        return PagedCacheAttention(pages, PagedContext(table, positions, CONTEXT + 1, PAGE_SIZE))


def in_double(attention: Attention) -> Attention:
    """The same with a cache of its own in float64."""
    if attention.cache is None:
        return attention
    return PagedCacheAttention(attention.cache.pages.double(), attention.cache.context)


def num_bytes(config: TransformerConfig, batch: int, is_paged: bool) -> int:
    """That a stack reads at least: weights in 16 bits, and keys and values."""
    hidden, ffn = config.hidden_size, config.ffn_size
    weights = hidden * (2 * config.q_size + 2 * config.kv_size + 3 * ffn)
    cache = batch * CONTEXT * 2 * config.kv_size if is_paged else 0
    return 2 * config.num_layers * (weights + cache)
