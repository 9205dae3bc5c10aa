"""The paged KV cache of both language models. They see the same positions, so one page table serves both."""

from __future__ import annotations

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig, TransformerConfig
from voxcpm_core.kernels.layer_ops import ALL_TOKENS, LayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.rope import Rotation


class KvCache:
    """Keys and values of all layers of base LM and residual LM, in pages."""

    def __init__(
        self, config: ModelConfig, num_pages: int, page_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        lm = config.base_lm
        num_layers = lm.num_layers + config.residual_lm.num_layers
        shape = (num_layers, 2, num_pages, page_size, lm.num_kv_heads, lm.head_dim)
        self.pages = torch.zeros(shape, device=device, dtype=dtype)
        self.page_size = page_size
        self._first_residual_layer = lm.num_layers

    @staticmethod
    def page_bytes(config: ModelConfig, page_size: int, dtype: torch.dtype) -> int:
        """Memory of one page over all layers."""
        num_layers = config.base_lm.num_layers + config.residual_lm.num_layers
        return num_layers * 2 * page_size * config.base_lm.kv_size * dtype.itemsize

    def copy_page(self, source: int, target: int) -> None:
        """Of all layers, after what was launched before and before what follows."""
        self.pages[:, :, target].copy_(self.pages[:, :, source])

    def base(self, context: PagedContext) -> PagedCacheAttention:
        return PagedCacheAttention(self.pages[: self._first_residual_layer], context)

    def residual(self, context: PagedContext) -> PagedCacheAttention:
        return PagedCacheAttention(self.pages[self._first_residual_layer :], context)


class PagedCacheAttention:
    """Attention of one language model over its layers of the cache; new keys and values are stored first."""

    def __init__(self, pages: Tensor, context: PagedContext) -> None:
        self._pages = pages  # [layers, 2, num_pages, page_size, kv_heads, head_dim]
        self._context = context
        self.positions = context.positions

    def attend(
        self, ops: LayerOps, layer: int, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig,
        rotation: Rotation | None, kept: slice,
    ) -> tuple[Tensor, Tensor]:
        assert kept == ALL_TOKENS
        return ops.paged_attention(x, norm, qkv, config, rotation, self._pages[layer], self._context), x
