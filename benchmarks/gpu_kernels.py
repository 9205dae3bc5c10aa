"""Kernels on a CUDA device against their torch references in float64, with fresh random inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention
from voxcpm_core.kernels.triton_attention import triton_paged_attention

CUDA = torch.device("cuda")
PAGE_SIZE, MAX_PAGES = 16, 64
# (batch, query tokens, heads, kv heads, head_dim) of decoding and of prefilling the released models
ATTENTION_SHAPES = [
    (1, 1, 16, 2, 128), (64, 1, 16, 2, 128), (17, 1, 16, 2, 64), (1, 300, 16, 2, 128), (2, 45, 16, 2, 64),
]
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}

# (name, value, limit)
Check = Callable[[str, float, float], None]


def check_kernels(check: Check) -> None:
    for shape in ATTENTION_SHAPES:
        for dtype, limit in LIMITS.items():
            name = f"paged attention {shape}, {str(dtype).removeprefix('torch.')}, largest error"
            check(name, _attention_error(*shape, dtype), limit)


def _attention_error(
    batch: int, num_tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> float:
    num_pages = batch * MAX_PAGES
    pages = torch.randn(2, num_pages, PAGE_SIZE, kv_heads, head_dim, device=CUDA, dtype=dtype)
    table = torch.randperm(num_pages, device=CUDA).view(batch, MAX_PAGES)
    last = MAX_PAGES * PAGE_SIZE - num_tokens
    positions = torch.randint(0, last, (batch, 1), device=CUDA) + torch.arange(num_tokens, device=CUDA)
    q = torch.randn(batch, num_tokens, heads, head_dim, device=CUDA, dtype=dtype)
    context = PagedContext(table, positions, MAX_PAGES * PAGE_SIZE, PAGE_SIZE)
    expected = paged_attention(q.double(), pages[0].double(), pages[1].double(), context)
    return float((triton_paged_attention(q, pages[0], pages[1], context).double() - expected).abs().max())
