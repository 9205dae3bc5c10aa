"""Attention over a paged KV cache: one code path for prefill (many queries) and decode (one), in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class PagedContext:
    """Where the rows of one forward pass live in the cache.

    max_context is known to the host (positions advance by one a step), so no device value is read.
    """

    page_table: Tensor  # int64 [B, max_pages], page ids of each row in order
    positions: Tensor  # int64 [B, T], cache position of each query
    max_context: int  # at least the largest position + 1
    page_size: int

    @cached_property
    def int32_keys(self) -> tuple[Tensor, Tensor]:
        """The page table [B, N], and how many keys each row ends with [B], in int32; made once for all layers.

        For rows of T positions that follow each other, also of those that fill a prefix up and were held back at the
        last position that there is. The table has pages for these, too: the row's first one again, since what is in it
        is the row's own, and finite if the row is.
        """
        num_tokens = self.positions.shape[1]
        num_more = -(-(num_tokens - 1) // self.page_size)
        table = torch.cat((self.page_table, self.page_table[:, :1].expand(-1, num_more)), dim=1)
        return table.to(torch.int32), (self.positions[:, 0] + num_tokens).to(torch.int32)


# As `paged_attention`.
PagedAttention = Callable[[Tensor, Tensor, Tensor, PagedContext], Tensor]


def write_pages(pages: Tensor, values: Tensor, context: PagedContext) -> None:
    """Store keys or values at their positions.

    pages: [num_pages, page_size, kv_heads, head_dim], written in place; values: [B, T, kv_heads, head_dim].
    """
    page = context.page_table.gather(1, context.positions // context.page_size)  # [B, T]
    pages[page, context.positions % context.page_size] = values


def paged_attention(q: Tensor, k_pages: Tensor, v_pages: Tensor, context: PagedContext) -> Tensor:
    """Causal grouped-query attention of each query over its row's cache up to its own position.

    q: [B, T, heads, head_dim]; k_pages, v_pages: [num_pages, page_size, kv_heads, head_dim].
    Returns [B, T, heads, head_dim].
    """
    num_pages = -(-context.max_context // context.page_size)
    table = context.page_table[:, :num_pages]
    k = k_pages[table].flatten(1, 2).transpose(1, 2)  # [B, kv_heads, K, head_dim]
    v = v_pages[table].flatten(1, 2).transpose(1, 2)
    keys = torch.arange(num_pages * context.page_size, device=q.device)
    mask = (keys <= context.positions.unsqueeze(-1)).unsqueeze(1)  # [B, 1, T, K]
    # What lies beyond a row's own context belongs to others; a weight of zero would not stop its NaN.
    foreign = (keys > context.positions[:, -1:]).view(-1, 1, keys.shape[0], 1)
    k, v = k.masked_fill(foreign, 0.0), v.masked_fill(foreign, 0.0)
    out = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask, enable_gqa=True)
    return out.transpose(1, 2)
