"""Rotary embedding of merged query, key and value rows, in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from voxcpm_core.config import TransformerConfig

# cos and sin of each row, [..., 1, head_dim] to broadcast over heads
Rotation = tuple[Tensor, Tensor]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rope (rotate-half convention) in fp32 and round back. x: [..., heads, head_dim]."""
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


def rotated_heads(qkv: Tensor, config: TransformerConfig, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
    """qkv: [B, T, q + 2 kv] -> q [B, T, heads, head_dim], k and v [B, T, kv_heads, head_dim]."""
    q, k, v = qkv.split((config.q_size, config.kv_size, config.kv_size), dim=-1)
    q = q.unflatten(-1, (config.num_heads, config.head_dim))
    k = k.unflatten(-1, (config.num_kv_heads, config.head_dim))
    v = v.unflatten(-1, (config.num_kv_heads, config.head_dim))
    return (q, k, v) if rotation is None else (rotate(q, *rotation), rotate(k, *rotation), v)
