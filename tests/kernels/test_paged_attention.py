"""Paged attention against plain causal attention over the same keys."""

import pytest
import torch
from torch.nn import functional as F

from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention, write_pages

PAGE_SIZE, NUM_PAGES, KV_HEADS, HEADS, HEAD_DIM = 4, 32, 2, 6, 8


@pytest.mark.parametrize("length", [1, 3, 4, 5, 17])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_chunks_through_scattered_pages_equal_whole_causal_attention(length, chunk):
    generator = torch.Generator().manual_seed(length)
    q = torch.randn(1, length, HEADS, HEAD_DIM, generator=generator)
    k, v = torch.randn(2, 1, length, KV_HEADS, HEAD_DIM, generator=generator)
    pages = torch.full((2, NUM_PAGES, PAGE_SIZE, KV_HEADS, HEAD_DIM), float("nan"))  # stale values must not show
    table = torch.randperm(NUM_PAGES, generator=generator)[:8].unsqueeze(0)
    outputs = []
    for start in range(0, length, chunk):
        stop = min(start + chunk, length)
        context = PagedContext(table, torch.arange(start, stop).unsqueeze(0), stop, PAGE_SIZE)
        write_pages(pages[0], k[:, start:stop], context)
        write_pages(pages[1], v[:, start:stop], context)
        outputs.append(paged_attention(q[:, start:stop], pages[0], pages[1], context))
    whole = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole, atol=1e-6, rtol=1e-5)


def test_rows_of_different_lengths_do_not_see_each_other():
    generator = torch.Generator().manual_seed(0)
    pages = torch.randn(2, NUM_PAGES, PAGE_SIZE, KV_HEADS, HEAD_DIM, generator=generator)
    table = torch.randperm(NUM_PAGES, generator=generator).view(4, 8)
    positions = torch.tensor([[0], [5], [30], [12]])
    q = torch.randn(4, 1, HEADS, HEAD_DIM, generator=generator)
    together = paged_attention(q, *pages, PagedContext(table, positions, 31, PAGE_SIZE))
    for row in range(4):
        context = PagedContext(table[row : row + 1], positions[row : row + 1], int(positions[row]) + 1, PAGE_SIZE)
        alone = paged_attention(q[row : row + 1], *pages, context)
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-6, rtol=1e-5)
