"""The function of flash-attn that the engine calls, in torch, with what the real one refuses; it needs no GPU."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor

from voxcpm_core.kernels import flash_attention


class FlashStandIn(ModuleType):
    """In the place of the module `flash_attn` 2.8."""

    def __init__(self) -> None:
        super().__init__("flash_attn")
        self.num_calls = 0

    def flash_attn_with_kvcache(
        self, q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
        cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False,
        window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0,
        return_softmax_lse=False,
    ) -> Tensor:  # fmt: skip
        """q: [B, T, heads, D]; caches: [pages, page_size, kv_heads, D]. The causal mask ends in the lower right corner.

        Keys behind a row's length are not read, and all others are, whatever weight they have.
        """
        assert causal
        assert k is v is rotary_cos is rotary_sin is cache_batch_idx is cache_leftpad is alibi_slopes is None
        assert k_cache.shape[1] % 256 == 0
        assert cache_seqlens.dtype == block_table.dtype == torch.int32
        assert cache_seqlens.shape == (len(q),)
        assert cache_seqlens.is_contiguous()
        assert block_table.shape[0] == len(q)
        assert block_table.stride(-1) == k_cache.stride(-1) == v_cache.stride(-1) == q.stride(-1) == 1
        self.num_calls += 1
        return torch.stack([
            self._row(*row, k_cache, v_cache) for row in zip(q, cache_seqlens.tolist(), block_table, strict=True)
        ])  # fmt: skip

    def _row(self, q: Tensor, num_keys: int, table: Tensor, k_cache: Tensor, v_cache: Tensor) -> Tensor:
        """One sequence. # [T, heads, D]"""
        page_size, group = k_cache.shape[1], q.shape[1] // k_cache.shape[2]
        assert num_keys <= len(table) * page_size, "keys that the table has no page for"
        pages = table[: -(-num_keys // page_size)].long()
        k, v = (
            cache[pages].flatten(0, 1)[:num_keys].float().repeat_interleave(group, dim=1)
            for cache in (k_cache, v_cache)
        )  # [K, heads, D]
        scores = torch.einsum("thd,khd->htk", q.float(), k) * q.shape[-1] ** -0.5
        last = torch.arange(num_keys - len(q), num_keys, device=q.device)
        hidden = torch.arange(num_keys, device=q.device) > last.unsqueeze(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        return torch.einsum("htk,khd->thd", weights, v).to(q.dtype)


@pytest.fixture
def flash_stand_in(monkeypatch: pytest.MonkeyPatch) -> FlashStandIn:
    """Installed, and taken for fit for any device and type."""
    module = FlashStandIn()
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    monkeypatch.setattr(flash_attention, "require_support", lambda device, dtype, head_dim: None)
    return module
