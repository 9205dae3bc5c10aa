"""Attention by flash-attn on a CUDA device, where it is installed: beside the Triton kernel, in graphs and engines."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu_fp8 import GENERATION, REQUEST, distance, small_release
from benchmarks.gpu_kernels import CUDA, LIMITS, Check
from tests.engine.harness import Harness
from voxcpm_core.config import EngineConfig
from voxcpm_core.config.engine import PAGE_SIZES
from voxcpm_core.kernels.flash_attention import flash_paged_attention
from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention
from voxcpm_core.kernels.triton_attention import triton_paged_attention

DTYPE, PAGE_SIZE, MAX_PAGES = torch.bfloat16, PAGE_SIZES["flash"], 4
CAPACITY = MAX_PAGES * PAGE_SIZE
# (batch, query tokens, heads, kv heads, head_dim): decoding and prefilling the released models
SHAPES = [(1, 1, 16, 2, 128), (64, 1, 16, 2, 64), (2, 300, 16, 2, 64), (3, 32, 16, 2, 128)]


def check_flash(check: Check, root: Path) -> None:
    """Its errors, and those of an engine; says so where it is not installed."""
    if importlib.util.find_spec("flash_attn") is None:
        print("     flash-attn is not installed: not checked", flush=True)
        return
    for shape in SHAPES:
        _check_attention(check, *shape)
    _check_engine(check, root)


def _check_attention(check: Check, batch: int, num_tokens: int, heads: int, kv_heads: int, head_dim: int) -> None:
    """Against float64; in a graph whose positions change after it was captured, and which may not wait for anything.

    The first row begins at position 0, and of several tokens the last row goes beyond the table, as filling up may.
    """
    pages = torch.randn(2, batch * MAX_PAGES, PAGE_SIZE, kv_heads, head_dim, device=CUDA, dtype=DTYPE)
    table = torch.randperm(batch * MAX_PAGES, device=CUDA).view(batch, MAX_PAGES)
    q = torch.randn(batch, num_tokens, heads, head_dim, device=CUDA, dtype=DTYPE)
    attend = flash_paged_attention(CUDA, DTYPE, head_dim)
    positions = torch.zeros(batch, num_tokens, device=CUDA, dtype=torch.int64)

    def begin() -> None:
        first = torch.randint(0, CAPACITY - num_tokens, (batch, 1), device=CUDA)
        first[0], first[-1] = 0, CAPACITY - num_tokens // 2 - 1
        positions.copy_((first + torch.arange(num_tokens, device=CUDA)).clamp(max=CAPACITY - 1))

    def run() -> torch.Tensor:
        return attend(q, pages[0], pages[1], PagedContext(table, positions, CAPACITY, PAGE_SIZE))

    begin()
    run()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    begin()
    graph.replay()
    context = PagedContext(table, positions, CAPACITY, PAGE_SIZE)
    kept = torch.ones(batch, num_tokens, device=CUDA, dtype=torch.bool)
    kept[:, 1:] = positions[:, 1:] > positions[:, :-1]  # the rest only fills up
    expected = paged_attention(q.double(), pages[0].double(), pages[1].double(), context)
    beside = triton_paged_attention(q, pages[0], pages[1], context)
    difference = float((found - beside)[kept].abs().max())
    name = f"flash-attn {(batch, num_tokens, heads, kv_heads, head_dim)} in a graph,"
    check(f"{name} largest error", float((found.double() - expected)[kept].abs().max()), LIMITS[DTYPE])
    check(f"{name} largest difference to the Triton kernel", difference, 2 * LIMITS[DTYPE])
    check(f"{name} not equal to eager", float(not torch.equal(found, run())), 0)
    check(f"{name} not finite", float(not bool(found.isfinite().all())), 0)


def _check_engine(check: Check, root: Path) -> None:
    folder = small_release(root)
    first: dict[str, np.ndarray] = {}
    for attention in PAGE_SIZES:
        config = EngineConfig(max_running=2, max_model_len=1024, kv_cache_mib=256, attention=attention)
        harness = Harness(folder, config, device=CUDA)
        harness.core.runner.capture()
        received = [harness.add(REQUEST) for _ in range(2)]
        harness.drain()
        first[attention] = received[0].latents[0].ravel()
        finite = all(np.isfinite(stream.audio).all() for stream in received)
        check(f"VoxCPM{GENERATION}, attention {attention}, not finite", float(not finite), 0)
    name = f"VoxCPM{GENERATION}, first patch, 1 - cosine of flash-attn to the Triton kernel"
    check(name, distance(*first.values()), 1e-2)
