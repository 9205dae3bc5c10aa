"""Small stacks of blocks with fixed random weights, and what they attend to."""

from __future__ import annotations

import dataclasses

import torch

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig, TransformerConfig
from voxcpm_core.kernels.block import LayerWeights
from voxcpm_core.kernels.layer_ops import LayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import PagedCacheAttention
from voxcpm_core.model.rope import RopeTable
from voxcpm_core.model.transformer import Transformer

NUM_LAYERS, PAGE_SIZE, NUM_PAGES, NUM_POSITIONS = 2, 16, 32, 128


def randn(*shape: int, dtype: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def small_config(head_dim: int = 32, rope: bool = True, **sizes: int) -> TransformerConfig:
    """No side is a multiple of a tile's; heads are shared by three."""
    base = ModelConfig.from_json(release_config("2")).base_lm
    assert base.rope is not None
    factors = tuple(1.0 + 0.1 * number for number in range(head_dim // 2))
    sizes = {"hidden_size": 48, "ffn_size": 80, "num_heads": 6, "num_kv_heads": 2} | sizes
    return dataclasses.replace(
        base, head_dim=head_dim, num_layers=NUM_LAYERS, residual_scale=0.5,
        rope=dataclasses.replace(base.rope, factors=factors) if rope else None, **sizes,
    )  # fmt: skip


def small_stack(config: TransformerConfig, ops: LayerOps, dtype: torch.dtype, device: torch.device) -> Transformer:
    """The same weights each time."""
    shapes = {
        "qkv": (config.q_size + 2 * config.kv_size, config.hidden_size), "o": (config.hidden_size, config.q_size),
        "gate_up": (2 * config.ffn_size, config.hidden_size), "down": (config.hidden_size, config.ffn_size),
    }  # fmt: skip
    layers = []
    for layer in range(config.num_layers):
        products = {
            name: Linear(randn(*shape, dtype=dtype, device=device, seed=10 * layer + number) * shape[1] ** -0.5)
            for number, (name, shape) in enumerate(shapes.items())
        }
        norms = 1.0 + 0.1 * randn(2, config.hidden_size, dtype=dtype, device=device, seed=10 * layer + 9)
        layers.append(LayerWeights(input_norm=norms[0], post_norm=norms[1], **products))
    rope = config.rope and RopeTable(config.rope, NUM_POSITIONS, device, dtype)
    norm = 1.0 + 0.1 * randn(config.hidden_size, dtype=dtype, device=device, seed=99)
    return Transformer(config, layers, norm, rope, ops)


def filled_cache(
    config: TransformerConfig, positions: list[int], dtype: torch.dtype, device: torch.device
) -> PagedCacheAttention:
    """Rows at these positions, each with random pages of its own."""
    shape = (config.num_layers, 2, NUM_PAGES, PAGE_SIZE, config.num_kv_heads, config.head_dim)
    order = torch.randperm(NUM_PAGES, generator=torch.Generator().manual_seed(3))
    most = NUM_POSITIONS // PAGE_SIZE
    table = order[: len(positions) * most].view(len(positions), most).to(device)
    context = PagedContext(
        table, torch.tensor(positions, device=device).unsqueeze(1), max(positions) + 1, PAGE_SIZE
    )
    return PagedCacheAttention(randn(*shape, dtype=dtype, device=device, seed=4), context)
