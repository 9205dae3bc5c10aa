"""Kernels on a CUDA device against their torch references in float64, with fresh random inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.noise import philox_normal
from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention
from voxcpm_core.kernels.triton_attention import triton_paged_attention
from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps
from voxcpm_core.kernels.triton_noise import triton_philox_normal

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
    _check_noise(check)
    for dtype in LIMITS:
        _check_layer_ops(check, dtype)
    for shape in ATTENTION_SHAPES:
        for dtype, limit in LIMITS.items():
            name = f"paged attention {shape}, {str(dtype).removeprefix('torch.')}, largest error"
            check(name, _attention_error(*shape, dtype), limit)


def _check_noise(check: Check) -> None:
    seeds, patches = torch.randint(0, 2**53, (64,), device=CUDA), torch.arange(64, device=CUDA)
    found, expected = (normal(seeds, patches, 256) for normal in (triton_philox_normal, philox_normal))
    check("noise, largest error", float((found - expected).abs().max()), 1e-6)


def _check_layer_ops(check: Check, dtype: torch.dtype) -> None:
    """Against the same in torch, which rounds at the same places."""
    ours, theirs = TritonLayerOps(), TorchLayerOps()
    for rows, hidden in ((1, 2048), (704, 1024), (64, 2048)):
        x, branch, gate_up = (torch.randn(rows, width, device=CUDA, dtype=dtype) for width in (hidden, hidden, 8192))
        weight = torch.randn(hidden, device=CUDA, dtype=dtype)
        pairs = {
            "norm": (ops.norm(x, weight, 1e-5) for ops in (ours, theirs)),
            "sum and norm": (ops.add_norm(x, branch, 0.7, weight, 1e-5)[1] for ops in (ours, theirs)),
            "gating": (ops.swiglu(gate_up) for ops in (ours, theirs)),
        }
        for name, (found, expected) in pairs.items():
            error = float(((found - expected).double().abs() / expected.double().abs().clamp(min=1.0)).max())
            check(f"{name} [{rows}, {hidden}] {str(dtype).removeprefix('torch.')}, largest error", error, LIMITS[dtype])


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
