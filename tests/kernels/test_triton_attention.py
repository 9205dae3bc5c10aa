"""The Triton kernel of paged attention against the torch reference, interpreted on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention

triton_attention = pytest.importorskip(
    "voxcpm_core.kernels.triton_attention", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PAGE_SIZE, NUM_PAGES, HEAD_DIM = 16, 32, 16
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3}


def inputs(batch: int, num_tokens: int, heads: int, kv_heads: int, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(batch * 100 + num_tokens)
    pages = torch.randn(2, NUM_PAGES, PAGE_SIZE, kv_heads, HEAD_DIM, generator=generator)
    table = torch.randperm(NUM_PAGES, generator=generator)[: 10 * batch].view(batch, 10)
    first = torch.randint(0, 10 * PAGE_SIZE - num_tokens, (batch, 1), generator=generator)
    positions = first + torch.arange(num_tokens)
    for row in range(batch):  # what nobody has written must not show, not even as a weight of zero
        unwritten = torch.arange(10 * PAGE_SIZE)[int(positions[row, -1]) + 1 :]
        pages[:, table[row][unwritten // PAGE_SIZE], unwritten % PAGE_SIZE] = float("nan")
    q = torch.randn(batch, num_tokens, heads, HEAD_DIM, generator=generator)
    k_pages, v_pages = pages.to(DEVICE, dtype)
    return q.to(DEVICE, dtype), k_pages, v_pages, table.to(DEVICE), positions.to(DEVICE)


@pytest.mark.parametrize(
    ("batch", "num_tokens", "heads", "kv_heads", "dtype"),
    [
        (3, 1, 16, 2, torch.float32),
        (2, 1, 6, 2, torch.float32),  # a group that is no power of two
        (1, 5, 2, 2, torch.float32),
        (1, 35, 8, 1, torch.float32),  # several blocks of tokens
        (1, 132, 2, 1, torch.float32),  # several splits, and a prefix that was there before
        (1, 3, 16, 2, torch.float16),
    ],
)
def test_the_kernel_is_the_reference(batch, num_tokens, heads, kv_heads, dtype):
    values = inputs(batch, num_tokens, heads, kv_heads, dtype)
    q, k_pages, v_pages, table, positions = values
    context = PagedContext(table, positions, int(positions.max()) + 1, PAGE_SIZE)
    expected = paged_attention(q.float(), k_pages.float(), v_pages.float(), context)
    for num_processors in (1, 132):  # whole, and in splits
        out = triton_attention.attend(*values, num_processors)
        assert out.dtype == dtype
        torch.testing.assert_close(out.float(), expected, atol=TOLERANCE[dtype], rtol=0)


def test_splits_cover_all_keys_and_are_not_too_small():
    for num_programs in (1, 2, 16, 128, 512):
        for max_keys in (16, 100, 128, 512, 4096, 32768):
            count, keys = triton_attention.splits_for(num_programs, max_keys, 132)
            assert (count - 1) * keys < max_keys <= count * keys
            assert count == 1 or keys >= triton_attention.MIN_KEYS_PER_SPLIT
            assert count == 1 or count * num_programs <= 132
