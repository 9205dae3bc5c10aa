"""The kernels between the products beside their torch references, in the sizes of a decode step of VoxCPM2 in bf16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.products.timing import GraphTimer
from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.kernel_set import TORCH_KERNELS, KernelSet, triton_kernels
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.triton_decode_attention import decode_attention
from voxcpm_core.kernels.triton_layer_ops import gpu_of
from voxcpm_core.kernels.triton_products import new_counters
from voxcpm_core.model.rope import RopeTable

BATCHES = (1, 16, 64)
DTYPE = torch.bfloat16
CONTEXT, PAGE_SIZE, MAX_PAGES = 300, 16, 64
NUM_CALLS, ROUNDS = 32, (2, 2, 2, 3)


class OtherKernel(NamedTuple):
    """A kernel on inputs of its own; what it reads and writes at least."""

    name: str
    run: Callable[[KernelSet], Tensor]
    num_bytes: int


def other_kernels(batch: int, device: torch.device) -> Iterator[OtherKernel]:
    """Those of a decode step of so many streams."""
    config = ModelConfig.from_json(release_config("2"))
    lm, dit, hidden = config.base_lm, config.dit, config.base_lm.hidden_size

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=DTYPE)

    x, weight = randn(batch, hidden), randn(hidden)
    yield OtherKernel("norm", lambda kernels: kernels.layer_ops.norm(x, weight, 1e-5), 2 * (2 * x.numel() + hidden))
    num_tokens = 1 + config.mu_tokens + 2 * config.patch_size
    local = randn(2 * batch, num_tokens, dit.q_size + 2 * dit.kv_size)
    turned = dit.rope and RopeTable(dit.rope, num_tokens, device, DTYPE).at(torch.arange(num_tokens, device=device))
    yield OtherKernel(
        "local attention", lambda kernels: kernels.layer_ops.local_attention(local, dit, turned),
        2 * local.numel() + 2 * 2 * batch * num_tokens * dit.q_size,
    )
    table = torch.randperm(batch * MAX_PAGES, device=device).view(batch, MAX_PAGES)
    positions = torch.full((batch, 1), CONTEXT - 1, device=device)
    context = PagedContext(table, positions, CONTEXT, PAGE_SIZE)
    pages = randn(2, batch * MAX_PAGES, PAGE_SIZE, lm.num_kv_heads, lm.head_dim)
    merged = randn(batch, 1, lm.q_size + 2 * lm.kv_size)
    rotation = lm.rope and RopeTable(lm.rope, CONTEXT, device, DTYPE).at(positions)
    yield OtherKernel(
        "rope, store, paged attention",
        lambda kernels: kernels.layer_ops.paged_attention(merged, lm, rotation, pages, context),
        2 * batch * (2 * CONTEXT * lm.kv_size + 2 * lm.q_size + 2 * lm.kv_size),
    )
    counters = new_counters(device)

    def in_one(kernels: KernelSet) -> Tensor:
        if kernels is TORCH_KERNELS:
            return kernels.layer_ops.paged_attention(merged, lm, rotation, pages, context)
        return decode_attention(
            merged, None, 0.0, lm, rotation, pages, context, counters, gpu_of(device).num_processors
        )  # fmt: skip

    yield OtherKernel(
        "the same in one kernel", in_one, 2 * batch * (2 * CONTEXT * lm.kv_size + 2 * lm.q_size + 2 * lm.kv_size)
    )
    patch, velocity = (randn(rows, config.patch_size, config.feat_dim) for rows in (batch, 2 * batch))
    cfg_value, step = torch.full((batch,), 2.0, device=device), torch.tensor(0.1, device=device, dtype=DTYPE)
    yield OtherKernel(
        "guided step", lambda kernels: kernels.layer_ops.guided_step(patch, velocity, cfg_value, step),
        2 * 4 * patch.numel(),
    )
    seeds, numbers = torch.arange(batch, device=device), torch.arange(batch, device=device)
    size = config.patch_size * config.feat_dim
    yield OtherKernel("noise", lambda kernels: kernels.normal(seeds, numbers, size), 4 * batch * size)


def time_others(device: torch.device) -> list[dict[str, Any]]:
    """A line each, printed and returned; a kernel that fails is left out."""
    rows = []
    kernels = triton_kernels(device)
    print("kernel                         streams  Triton us   GB/s  torch us  largest difference")
    for batch in BATCHES:
        for kernel in other_kernels(batch, device):
            try:
                difference = float((kernel.run(kernels).float() - kernel.run(TORCH_KERNELS).float()).abs().max())
                timer = GraphTimer(device)  # a capture that broke off leaves the memory pool of its timer in use
                own_us, torch_us = (
                    timer.microseconds(lambda _, each=each, run=kernel.run: run(each), NUM_CALLS, ROUNDS)
                    for each in (kernels, TORCH_KERNELS)
                )
            except Exception as failure:  # the others go on
                print(f"  FAIL {kernel.name}, {batch} streams: {type(failure).__name__}: {failure}", flush=True)
                torch.cuda.synchronize()  # a device that is lost ends all here
                continue
            print(f"{kernel.name:30} {batch:7} {own_us:10.2f} {kernel.num_bytes / own_us / 1e3:6.0f} {torch_us:9.2f}  "
                  f"{difference:.1e}", flush=True)  # fmt: skip
            rows.append({"kernel": kernel.name, "streams": batch, "us": own_us, "torch_us": torch_us,
                         "num_bytes": kernel.num_bytes, "difference": difference})  # fmt: skip
    return rows
