"""Attention by flash-attn: what it is called with, and what is said where it cannot be used."""

from __future__ import annotations

import sys

import pytest
import torch

from tests.kernels.flash_stand_in import flash_stand_in
from voxcpm_core.errors import ConfigError
from voxcpm_core.kernels.flash_attention import flash_paged_attention
from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention

__all__ = ["flash_stand_in"]

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
PAGE_SIZE, NUM_PAGES, KV_HEADS, HEADS, HEAD_DIM = 256, 8, 2, 6, 8


def inputs(firsts: list[int], num_tokens: int, num_known_pages: int):
    """Rows that begin there, over pages in which nothing but their own keys is finite."""
    generator = torch.Generator().manual_seed(num_tokens)
    pages = torch.randn(2, NUM_PAGES, PAGE_SIZE, KV_HEADS, HEAD_DIM, generator=generator)
    table = torch.randperm(NUM_PAGES, generator=generator)[: len(firsts) * num_known_pages].view(len(firsts), -1)
    capacity = num_known_pages * PAGE_SIZE
    positions = (torch.tensor(firsts).unsqueeze(1) + torch.arange(num_tokens)).clamp(max=capacity - 1)
    owned = torch.zeros(NUM_PAGES, PAGE_SIZE, dtype=torch.bool)
    for row, last in enumerate(positions[:, -1].tolist()):
        at = torch.arange(last + 1)
        owned[table[row][at // PAGE_SIZE], at % PAGE_SIZE] = True
    pages[:, ~owned] = float("nan")
    q = torch.randn(len(firsts), num_tokens, HEADS, HEAD_DIM, generator=generator)
    return q, pages, PagedContext(table, positions, int(positions.max()) + 1, PAGE_SIZE)


@pytest.mark.parametrize(
    ("firsts", "num_tokens", "num_pages"),
    [
        ([0, 255, 256, 511], 1, 2),  # decoding
        ([0, 3], 5, 1),
        ([250, 0, 100], 40, 2),
        ([500], 32, 2),  # filled up beyond the last position that there is
        ([300, 0], 400, 2),  # by more than a page
    ],
)
def test_it_is_the_reference_up_to_the_last_position(firsts, num_tokens, num_pages, flash_stand_in):
    q, pages, context = inputs(firsts, num_tokens, num_pages)
    found = flash_paged_attention(CPU, torch.float32, HEAD_DIM)(q, pages[0], pages[1], context)
    expected = paged_attention(q, pages[0], pages[1], context)
    assert found.isfinite().all()
    for row, first in enumerate(firsts):
        kept = min(num_tokens, num_pages * PAGE_SIZE - first)  # what follows only fills up
        torch.testing.assert_close(found[row, :kept], expected[row, :kept], atol=1e-5, rtol=1e-5)


def test_what_all_layers_share_is_made_once(flash_stand_in):
    q, pages, context = inputs([0, 7], 1, 1)
    attend = flash_paged_attention(CPU, torch.float32, HEAD_DIM)
    attend(q, pages[0], pages[1], context)
    made = context.int32_keys
    attend(q, pages[0], pages[1], context)
    assert context.int32_keys is made
    assert flash_stand_in.num_calls == 2


@pytest.mark.parametrize(
    ("device", "dtype", "head_dim", "capability", "message"),
    [
        (CPU, torch.bfloat16, 64, (9, 0), "attention: 'flash' needs a CUDA device, and the engine is on cpu"),
        (CUDA, torch.bfloat16, 64, (7, 5), "attention: 'flash' needs a GPU of .* 8.0 or more, and this one has 7.5"),
        (CUDA, torch.float32, 64, (9, 0), "attention: 'flash' needs dtype bfloat16, and this engine's is float32"),
        (CUDA, torch.bfloat16, 512, (9, 0), "attention: 'flash' needs heads .*, and this model's have 512"),
        (CUDA, torch.bfloat16, 64, (9, 0), "attention: 'flash' needs the package flash-attn, .*cannot be imported"),
    ],
)
def test_what_is_missing_is_named(device, dtype, head_dim, capability, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ConfigError, match=message):
        flash_paged_attention(device, dtype, head_dim)
