"""The kernels between the products beside their torch references, in the sizes of a decode step of VoxCPM2 in bf16."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.dit_ends import DitEnds
from benchmarks.products.timing import EPS, GraphTimer, inverse_rms
from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.layer_ops import TorchLayerOps, attend_locally, store_and_attend
from voxcpm_core.kernels.noise import philox_normal
from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention
from voxcpm_core.kernels.triton_attention import num_processors
from voxcpm_core.kernels.triton_decode_attention import decode_attention
from voxcpm_core.kernels.triton_gating import swiglu
from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps
from voxcpm_core.kernels.triton_local_attention import local_attention
from voxcpm_core.kernels.triton_noise import triton_philox_normal
from voxcpm_core.kernels.triton_norm import rms_norm
from voxcpm_core.kernels.triton_products import new_counters
from voxcpm_core.model.rope import RopeTable

BATCHES = (1, 16, 64)
DTYPE = torch.bfloat16
CONTEXT, PAGE_SIZE, MAX_PAGES = 300, 16, 64
NUM_CALLS, ROUNDS = 32, (2, 2, 2, 3)


class OtherKernel(NamedTuple):
    """A kernel on inputs of its own; what it reads and writes at least."""

    name: str
    own: Callable[[], Tensor]
    reference: Callable[[], Tensor]
    num_bytes: int


class OtherKernels:
    """Those of a decode step of so many streams. Norms before products are scales behind them."""

    def __init__(self, batch: int, device: torch.device) -> None:
        self._batch, self._device = batch, device
        self._config = ModelConfig.from_json(release_config("2"))

    def __iter__(self) -> Iterator[OtherKernel]:
        yield from self._of_rows()
        yield from self._local_attentions()
        yield self._decode_attention()
        yield from self._around_the_dit()
        yield self._noise()

    def _randn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self._device, dtype=DTYPE)

    def _of_rows(self) -> Iterator[OtherKernel]:
        lm = self._config.base_lm
        x, weight = self._randn(self._batch, lm.hidden_size), self._randn(lm.hidden_size)
        gate_up = self._randn(self._batch, 2 * lm.ffn_size)
        reference = TorchLayerOps()
        yield OtherKernel(
            "norm", lambda: rms_norm(x, weight, EPS), lambda: reference.norm(x, weight, EPS),
            2 * (2 * x.numel() + lm.hidden_size),
        )

        def gated() -> Tensor:
            gate, up = _scaled(gate_up, x).chunk(2, dim=-1)
            return F.silu(gate) * up

        num_bytes = 2 * (3 * self._batch * lm.ffn_size + x.numel())
        yield OtherKernel("scale and gating", lambda: swiglu(gate_up, x, EPS), gated, num_bytes)

    def _local_attentions(self) -> Iterator[OtherKernel]:
        """Of all tokens, and in the last layer of those that are kept."""
        dit, config = self._config.dit, self._config
        num_tokens = 1 + config.mu_tokens + 2 * config.patch_size
        qkv = self._randn(2 * self._batch, num_tokens, dit.q_size + 2 * dit.kv_size)
        x = self._randn(2 * self._batch, num_tokens, dit.hidden_size)
        positions = torch.arange(num_tokens, device=self._device)
        turned = dit.rope and RopeTable(dit.rope, num_tokens, self._device, DTYPE).at(positions)
        yield OtherKernel(
            "scale and local attention", lambda: local_attention(qkv, dit, turned, x, EPS)[0],
            lambda: attend_locally(_scaled(qkv, x), dit, turned),
            2 * (qkv.numel() + x.numel() + 2 * self._batch * num_tokens * dit.q_size),
        )
        kept = slice(-config.patch_size, None)
        yield OtherKernel(
            "the same of the kept tokens", lambda: local_attention(qkv, dit, turned, x, EPS, kept)[0],
            lambda: attend_locally(_scaled(qkv, x), dit, turned)[:, kept],
            2 * (qkv.numel() + x.numel() + 2 * self._batch * config.patch_size * (dit.q_size + dit.hidden_size)),
        )

    def _decode_attention(self) -> OtherKernel:
        lm, batch = self._config.base_lm, self._batch
        table = torch.randperm(batch * MAX_PAGES, device=self._device).view(batch, MAX_PAGES)
        positions = torch.full((batch, 1), CONTEXT - 1, device=self._device)
        context = PagedContext(table, positions, CONTEXT, PAGE_SIZE)
        pages = self._randn(2, batch * MAX_PAGES, PAGE_SIZE, lm.num_kv_heads, lm.head_dim)
        qkv, x = self._randn(batch, 1, lm.q_size + 2 * lm.kv_size), self._randn(batch, 1, lm.hidden_size)
        turned = lm.rope and RopeTable(lm.rope, CONTEXT, self._device, DTYPE).at(positions)
        counters, processors = new_counters(self._device), num_processors(self._device)
        return OtherKernel(
            "scale, rope, store, attention",
            lambda: decode_attention(qkv, x, EPS, lm, turned, pages, context, counters, processors),
            lambda: store_and_attend(_scaled(qkv, x), lm, turned, pages, context, paged_attention),
            2 * batch * (2 * CONTEXT * lm.kv_size + 2 * lm.q_size + 2 * lm.kv_size + lm.hidden_size),
        )

    def _around_the_dit(self) -> Iterator[OtherKernel]:
        dit = DitEnds.random(self._config, self._batch, self._device, DTYPE)
        own, reference = TritonLayerOps(self._device), TorchLayerOps()
        num_tokens = 1 + self._config.mu_tokens + 2 * self._config.patch_size
        yield OtherKernel(
            "DiT's tokens", lambda: dit.tokens(own), lambda: dit.tokens(reference),
            2 * (dit.x.numel() + dit.in_proj.weight.numel() + dit.mu.numel() + dit.cond.numel()
                 + 2 * self._batch * num_tokens * self._config.dit.hidden_size),
        )  # fmt: skip
        yield OtherKernel(
            "norm, product, guided step", lambda: dit.stepped(own), lambda: dit.stepped(reference),
            2 * (2 * dit.x.numel() + dit.out_proj.weight.numel() + dit.hidden.numel()),
        )

    def _noise(self) -> OtherKernel:
        seeds, numbers = (torch.arange(self._batch, device=self._device) for _ in range(2))
        size = self._config.patch_size * self._config.feat_dim
        return OtherKernel(
            "noise", lambda: triton_philox_normal(seeds, numbers, size), lambda: philox_normal(seeds, numbers, size),
            4 * self._batch * size,
        )


def _scaled(rows: Tensor, x: Tensor) -> Tensor:
    """By the inverse RMS of x."""
    return (rows.float() * inverse_rms(x.float())).to(rows.dtype)


def time_others(device: torch.device) -> list[dict[str, Any]]:
    """A line each, printed and returned; a kernel that fails is left out."""
    rows = []
    print("kernel                         streams  Triton us   GB/s  torch us  largest difference")
    for batch in BATCHES:
        for kernel in OtherKernels(batch, device):
            try:
                difference = float((kernel.own().float() - kernel.reference().float()).abs().max())
                timer = GraphTimer(device)  # a capture that broke off leaves the memory pool of its timer in use
                own_us, torch_us = (
                    timer.microseconds(lambda _, run=run: run(), NUM_CALLS, ROUNDS)
                    for run in (kernel.own, kernel.reference)
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
