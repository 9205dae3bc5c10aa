"""Weights in float8 on a CUDA device: rows that are rounded, too, and an engine with and without graphs."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.gpu_kernels import CUDA, Check
from benchmarks.products.timing import FP8_ROWS_LIMIT
from benchmarks.strict_launch import no_waiting
from tests.engine.harness import Harness
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.kernels.fp8 import FP8, LARGEST, quantised
from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.triton_fp8 import has_quantised_product, product_of_quantised, quantised_rows
from voxcpm_core.types import SamplingParams, SpeechRequest

GENERATION = "0.5"
REQUEST = SpeechRequest(
    target_text="hello the world " * 8, params=SamplingParams(max_length=8, ignore_stop=True, seed=1)
)
FEW, MANY = 2, 16  # streams, whose products in the DiT have rows as they are, and rounded
MAX_UNEQUAL = 1e-2  # share of codes next to each other, where a division rounds otherwise


def check_fp8(check: Check, root: Path) -> None:
    for norm in (False, True):
        _check_rows(check, norm)
    _check_product(check)
    _check_engine(check, root)


def small_release(root: Path) -> Path:
    """A full-size checkpoint of the smallest release, made once."""
    folder = root / f"full-{GENERATION}"
    if not (folder / "config.json").exists():
        make_checkpoint(folder, size=GENERATION, seed=0, device="cuda")
    return folder


def _check_rows(check: Check, with_norm: bool) -> None:
    x = torch.randn(257, 3072, device=CUDA, dtype=torch.bfloat16) * torch.rand(257, 1, device=CUDA).to(torch.bfloat16)
    codes, scales = quantised_rows(x, 1e-5 if with_norm else None)
    wide = (TorchLayerOps().norm(x, x.new_ones(3072), 1e-5) if with_norm else x).float()
    expected_scales = wide.abs().amax(dim=1, keepdim=True) / LARGEST
    expected = (wide / expected_scales).to(FP8)
    name = f"rows in float8, norm {with_norm},"
    check(f"{name} scales, relative error", float((scales / expected_scales - 1).abs().max()), 1e-2)
    check(f"{name} share of other codes", float((codes.float() != expected.float()).float().mean()), MAX_UNEQUAL)


def _check_product(check: Check) -> None:
    """In a graph."""
    x = torch.randn(352, 1024, device=CUDA, dtype=torch.bfloat16)
    codes, scales = quantised(torch.randn(4096, 1024, device=CUDA) / 32)
    linear = Linear(codes, scales=scales)
    if not has_quantised_product(x, linear):
        print("     this GPU has no products of rows in float8: not checked", flush=True)
        return
    product_of_quantised(x, linear)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = product_of_quantised(x, linear)
    x.copy_(torch.randn_like(x))
    graph.replay()
    expected = F.linear(x.double(), linear.weight_in(torch.float64))
    error = float((found.double() - expected).norm() / expected.norm())
    check("product of rows in float8, in a graph, relative error", error, FP8_ROWS_LIMIT)


def _check_engine(check: Check, root: Path) -> None:
    folder = small_release(root)
    first: dict[tuple[str, str], np.ndarray] = {}
    weight_bytes: dict[str, int] = {}
    for weights, cuda_graphs in (("dtype", "on"), ("fp8", "off"), ("fp8", "on")):
        config = EngineConfig(
            max_running=MANY, max_model_len=512, kv_cache_mib=256, weights=weights, cuda_graphs=cuda_graphs
        )
        harness = Harness(folder, config, device=CUDA)
        runner = harness.core.runner
        runner.capture()
        weight_bytes[weights] = harness.core.memory.weight_bytes
        received = [harness.add(REQUEST) for _ in range(FEW)]
        harness.drain()
        first[weights, cuda_graphs] = received[0].latents[0].ravel()
        if cuda_graphs == "on":
            with no_waiting(runner):
                received += [harness.add(REQUEST) for _ in range(MANY)]
                harness.drain()
        finite = all(np.isfinite(stream.audio).all() for stream in received)
        name = f"VoxCPM{GENERATION}, weights {weights}, graphs {cuda_graphs}"
        check(f"{name}, not finite", float(not finite), 0)
        if cuda_graphs == "on":
            to_few = distance(received[FEW].latents[0].ravel(), first[weights, "on"])
            check(f"{name}, first patch, 1 - cosine of {MANY} streams to {FEW}", to_few, 0.1)
        del harness, runner
        gc.collect()
        torch.cuda.empty_cache()
    check(f"VoxCPM{GENERATION}, memory of weights, fp8 by others", weight_bytes["fp8"] / weight_bytes["dtype"], 0.8)
    name = f"VoxCPM{GENERATION}, weights fp8, first patch, 1 - cosine"
    check(f"{name} of graphs to eager", distance(first["fp8", "on"], first["fp8", "off"]), 2e-2)
    check(f"{name} to other weights", distance(first["fp8", "on"], first["dtype", "on"]), 0.3)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """1 - cosine."""
    return 1 - float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))
