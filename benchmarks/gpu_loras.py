"""Adapters on a CUDA device: their kernels, their laws in graphs, and what they cost.

`python -m benchmarks.gpu_loras --size 2`; the checks are part of `gpu_check`, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from benchmarks.lora_kernels import time_kernels
from benchmarks.strict_launch import no_waiting
from tests.checkpoint.lora_folder import ATTENTION, MLP, make_lora
from tests.engine.harness import CPU, SMALL, Harness, Received
from tests.engine.requests import crowd
from tests.lora.adapters import add_adapter, ref_of
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.kernels.lora import LoraKernel, LoraStack, Selection, torch_lora
from voxcpm_core.kernels.triton_gating import swiglu
from voxcpm_core.kernels.triton_lora import triton_lora
from voxcpm_core.types import LoraRef, SamplingParams, SpeechRequest

CUDA = torch.device("cuda")
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
# Of merged layers out, in, rank, rows, tokens, with a norm: in a step of the language models, in the DiT, in a prefix.
SHAPES: list[tuple[tuple[int, ...], int, int, int, int, bool]] = [
    ((2048, 256, 256), 2048, 32, 5, 1, True), ((2048,), 2048, 32, 64, 1, False), ((2048,), 6144, 32, 64, 1, False),
    ((2048, 256, 256), 1024, 16, 5, 11, True), ((2048, 256, 256), 1024, 32, 64, 11, True),
    ((1024,), 2048, 64, 1, 11, False), ((1024,), 4096, 32, 64, 11, False), ((4096, 4096), 1024, 32, 1, 11, True),
    ((4096, 4096), 1024, 32, 64, 11, True), ((6144, 6144), 2048, 32, 64, 1, False),
    ((6144, 6144), 2048, 64, 5, 300, True),
]
WAYS = ("added", "gated")
SLOTS = (2, -1, 0, 3, -1)  # of rows, over and over
NUM_ADAPTERS, NUM_STREAMS, NUM_PATCHES = 8, 64, 24

Check = Callable[[str, float, float], None]  # name, value, limit


def check_lora_kernels(check: Check, dtype: torch.dtype) -> None:
    for shape in SHAPES:
        for way in WAYS if len(shape[0]) == 2 else WAYS[:1]:
            name = f"adapters {shape}, {way}, {str(dtype).removeprefix('torch.')}, largest error"
            check(name, _kernel_error(*shape, dtype, way), LIMITS[dtype])


def check_lora_engines(check: Check, root: Path) -> None:
    for generation in ("0.5", "2"):
        _check_engine(check, generation, root)


def _kernel_error(
    nums_out: tuple[int, ...], num_in: int, rank: int, num_rows: int, num_tokens: int, has_norm: bool,
    dtype: torch.dtype, way: str,
) -> float:  # fmt: skip
    """Relative to the largest value; infinite when a sequence without an adapter is touched, or is gated otherwise."""
    num_a, num_b, num_slots = len(nums_out) * rank * num_in, sum(nums_out) * rank, 4
    memory = torch.randn(num_slots, num_a + num_b, device=CUDA, dtype=dtype) / num_in**0.5
    rows = torch.tensor([SLOTS[i % len(SLOTS)] for i in range(num_rows)], device=CUDA)
    x = torch.randn(2 * num_rows, num_tokens, num_in, device=CUDA, dtype=dtype)
    y = torch.randn(2 * num_rows, num_tokens, sum(nums_out), device=CUDA, dtype=dtype)
    eps = 1e-5 if has_norm else None

    def added(kernel: LoraKernel, of: torch.dtype) -> torch.Tensor:
        a = memory[:, :num_a].unflatten(-1, (-1, num_in)).to(of)
        b = memory[:, num_a:].unflatten(-1, (-1, rank)).to(of)
        stack = LoraStack(a, b, nums_out, Selection(rows), kernel)
        if way == "gated":
            return stack.add_gated(y.to(of), x.to(of), eps)
        return stack.add(y.to(of, copy=True), x.to(of), eps=eps)

    expected, found = added(torch_lora, torch.float64), added(triton_lora, dtype)
    kept = swiglu(y) if way == "gated" else y
    without = [i for i in range(len(y)) if int(rows[i % len(rows)]) < 0]
    if not torch.equal(found[without], kept[without]):
        return float("inf")
    return float((found.double() - expected).abs().max() / expected.abs().max())


def _check_engine(check: Check, generation: str, root: Path) -> None:
    """Rows of mixed batches on CUDA against the CPU, with slots that adapters take from each other."""
    folder, loras = root / f"lora-{generation}", root / f"loras-{generation}"
    make_checkpoint(folder, size="tiny", generation=generation, seed=0, dtype="float32")
    loras.mkdir()
    config = dataclasses.replace(SMALL, lora_root=str(loras), lora_mlp="on", max_loras=3)
    on_cpu = Harness(folder, config, device=CPU)
    names = (*ATTENTION, *MLP)
    refs = [None, *(add_adapter(loras, on_cpu.model, str(i), r=4 + i, alpha=2, seed=i, names=names) for i in range(5))]
    requests = [dataclasses.replace(each, lora=refs[i % 6]) for i, each in enumerate(crowd(18, generation == "2"))]
    expected = on_cpu.run_staggered(requests, 1)
    name = f"VoxCPM{generation} tiny fp32 with adapters,"
    for cuda_graphs in ("off", "on"):
        harness = Harness(folder, dataclasses.replace(config, cuda_graphs=cuda_graphs), device=CUDA)
        harness.core.runner.capture()
        harness.run_staggered(requests, 1)  # what is made once is made here
        with no_waiting(harness.core.runner) if cuda_graphs == "on" else nullcontext():
            found = harness.run_staggered(requests, 1)
        check(f"{name} graphs {cuda_graphs}, against CPU", _largest_difference(found, expected), 1e-3)
        check(f"{name} pins left", harness.core._scheduler._loras.num_pinned, 0)


def _largest_difference(left: list[Received], right: list[Received]) -> float:
    if any(one.error_code or len(one.patches) != len(other.patches) for one, other in zip(left, right, strict=True)):
        return float("inf")
    return max(float(np.abs(one.latents - other.latents).max()) for one, other in zip(left, right, strict=True))


def time_loras(size: str, root: Path, with_mlp: bool) -> None:
    """Print the step of many streams without adapters served, with none in use, and with several."""
    folder, loras = root / f"full-{size}", root / "full-loras"
    make_checkpoint(folder, size=size, seed=0, device="cuda")
    loras.mkdir()
    served = EngineConfig(
        max_running=NUM_STREAMS, lora_root=str(loras), max_loras=NUM_ADAPTERS, max_lora_rank=32,
        lora_mlp="on" if with_mlp else "off",
    )  # fmt: skip
    for config, counts in ((dataclasses.replace(served, lora_root=""), (0,)), (served, (0, 1, NUM_ADAPTERS))):
        harness = Harness(folder, config, device=CUDA)
        harness.core.runner.capture()
        refs = []
        for i in range(max(counts)):
            names = (*ATTENTION, *MLP) if with_mlp else ATTENTION
            make_lora(loras / str(i), harness.model, r=32, alpha=1, seed=i, names=names)
            refs.append(ref_of(loras, str(i)))
        of_mlp = " of the feed-forward layers, too," if with_mlp else ""
        where = f"VoxCPM{size}, adapters{of_mlp} {'served' if config.lora_root else 'off'}"
        for count in counts:
            for num_streams in (1, NUM_STREAMS):
                step_ms = _step_ms(harness, refs[:count], num_streams)
                print(f"     {where}, {count} in use by {num_streams} streams: {step_ms:.2f} ms a step", flush=True)
        del harness
        torch.cuda.empty_cache()


def _step_ms(harness: Harness, refs: list[LoraRef], num_streams: int) -> float:
    params = SamplingParams(max_length=NUM_PATCHES, min_length=NUM_PATCHES, ignore_stop=True, seed=1)
    for i in range(num_streams):
        harness.add(SpeechRequest("hello the world", params=params, lora=refs[i % len(refs)] if refs else None))
    times = []
    while harness.core.has_work:
        start = time.perf_counter()
        harness.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="2", help="of the released model that is timed")
    parser.add_argument("--mlp", action="store_true", help="adapters of the feed-forward layers, too (lora_mlp)")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    num_failed = 0

    def check(name: str, value: float, limit: float) -> None:
        nonlocal num_failed
        num_failed += value > limit
        print(f"{'ok  ' if value <= limit else 'FAIL'} {name}: {value:.2e} (limit {limit:.0e})", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        for dtype in LIMITS:
            check_lora_kernels(check, dtype)
        check_lora_engines(check, Path(scratch))
        time_kernels(CUDA)
        time_loras(arguments.size, Path(scratch), arguments.mlp)
    return min(num_failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
