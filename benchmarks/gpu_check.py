"""Correctness on a CUDA device, in one call: `python -m benchmarks.gpu_check`.

Builds checkpoints of its own, checks that CUDA gives what the CPU gives, that the engine's laws hold there, and
that the released sizes load and run. Prints a line per check with the measured figure and its limit; exit code 1
when one fails. All sections but those that are timed run side by side.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import math
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.card import describe, this_card
from benchmarks.gpu_chain import check_chain
from benchmarks.gpu_exact import check_exact
from benchmarks.gpu_faults import check_faults
from benchmarks.gpu_flash import check_flash
from benchmarks.gpu_fp8 import check_fp8, distance
from benchmarks.gpu_joins import check_joins
from benchmarks.gpu_kernels import check_kernels
from benchmarks.gpu_loras import check_lora_engines, check_lora_kernels
from benchmarks.gpu_second_uses import check_second_uses
from benchmarks.limits import step_limit
from benchmarks.machine import as_line
from benchmarks.sections import run_apart
from benchmarks.vae_encoder import check_encoders
from tests.engine.harness import CPU, SMALL, Harness, Received
from tests.engine.requests import crowd
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.checkpoint.releases import RELEASES
from voxcpm_core.config import EngineConfig
from voxcpm_core.kernels.noise import philox_normal
from voxcpm_core.types import SamplingParams, SpeechRequest

CUDA = torch.device("cuda")
CROWD_SIZE = 16
LIMIT_S = 400.0  # of all sections together
FULL_SIZE_STREAMS = (1, 8, 16, 17, 32, 64)
FULL_SIZE_PATCHES = 20
FULL_SIZE_REQUEST = SpeechRequest(
    target_text="hello the world " * 8,
    params=SamplingParams(max_length=FULL_SIZE_PATCHES, ignore_stop=True, seed=1),
)
ENGINE_GIB = 14.0  # a share too small for the pages of all slots of the largest model, so that it must be kept to


class Report:
    def __init__(self) -> None:
        self.num_failed = 0

    def check(self, name: str, value: float, limit: float) -> None:
        """A figure that must not exceed its limit."""
        passed = value <= limit
        self.num_failed += not passed
        print(f"{'ok  ' if passed else 'FAIL'} {name}: {value:.2e} (limit {limit:.0e})", flush=True)

    def section(self, name: str, run: Callable[..., None], *arguments: Any) -> None:
        """Checks that belong together; an exception fails them and lets the other sections go on."""
        try:
            run(*arguments)
        except Exception:
            self.num_failed += 1
            print(f"FAIL {name}: {traceback.format_exc()}", flush=True)


def largest_difference(left: list[Received], right: list[Received]) -> float:
    """Over latents and audio; infinite when lengths or reasons differ, and where anything failed or is not finite."""
    worst = 0.0
    for one, other in zip(left, right, strict=True):
        if one.error_code or other.error_code or one.finish_reason != other.finish_reason:
            return math.inf
        if len(one.patches) != len(other.patches):
            return math.inf
        apart = [np.abs(one.latents - other.latents).max()]
        if one.patches[0].audio is not None:
            apart.append(np.abs(one.audio - other.audio).max())
        worst = max(worst, *(float(value) if np.isfinite(value) else math.inf for value in apart))
    return worst


def run_all(harness: Harness, requests: list[SpeechRequest], together: bool) -> list[Received]:
    if not together:
        return [harness.run(request) for request in requests]
    received = [harness.add(request) for request in requests]
    harness.drain()
    return received


def check_noise(report: Report) -> None:
    seeds, patches = torch.arange(64) * 2**40 - 5, torch.arange(64)
    on_cpu = philox_normal(seeds, patches, 256)
    on_cuda = philox_normal(seeds.to(CUDA), patches.to(CUDA), 256).cpu()
    report.check("noise, CUDA against CPU", float((on_cpu - on_cuda).abs().max()), 1e-5)


def tiny_checkpoint(root: Path, generation: str) -> Path:
    folder = root / generation
    make_checkpoint(folder, size="tiny", generation=generation, seed=0, dtype="float32")
    return folder


def check_laws(report: Report, root: Path, generation: str) -> None:
    folder = tiny_checkpoint(root, generation)
    requests = crowd(CROWD_SIZE, reference=generation == "2")
    on_cpu = run_all(Harness(folder), requests, together=False)
    eager = Harness(folder, dataclasses.replace(SMALL, cuda_graphs="off"), device=CUDA)
    alone = run_all(eager, requests, together=False)
    name = f"VoxCPM{generation} tiny fp32,"
    # cuBLAS sums in another order than the CPU, and for each batch size; the random model amplifies that over
    # up to a dozen patches. On the CPU a crowd changes nothing at all.
    report.check(f"{name} CUDA against CPU", largest_difference(alone, on_cpu), 1e-3)
    crowded = run_all(eager, requests, together=True)
    report.check(f"{name} alone against crowd", largest_difference(alone, crowded), 1e-4)
    graphs = Harness(folder, SMALL, device=CUDA)
    graphs.core.runner.capture()
    replayed = run_all(graphs, requests, together=True)
    report.check(f"{name} graphs against eager", largest_difference(replayed, crowded), 1e-4)
    check_exact(report.check, largest_difference, name, folder, reference=generation == "2")
    check_joins(report.check, largest_difference, name, folder, reference=generation == "2")
    # Two devices round differently, and random weights amplify it; but neither may be much farther from fp32.
    for cuda_graphs in ("off", "on"):
        bf16 = dataclasses.replace(SMALL, dtype="bfloat16", cuda_graphs=cuda_graphs)
        dev, host = (
            first_distance(run_all(Harness(folder, bf16, device=device), requests, together=True), on_cpu)
            for device in (CUDA, CPU)
        )
        name = f"VoxCPM{generation} tiny bf16, graphs {cuda_graphs}, first patches, distance to fp32 by the CPU's"
        report.check(f"{name} ({host:.1e})", dev / host, 2.0)


def first_distance(left: list[Received], right: list[Received]) -> float:
    """1 - cosine between the first patches of two runs of the same requests, mean."""
    pairs = [(a.latents[0].ravel(), b.latents[0].ravel()) for a, b in zip(left, right, strict=True)]
    return statistics.mean(distance(a, b) for a, b in pairs if np.any(b))


def check_release(report: Report, generation: str, root: Path) -> None:
    folder = root / f"full-{generation}"
    make_checkpoint(folder, size=generation, seed=0, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    _, total_bytes = torch.cuda.mem_get_info()
    first: dict[str, np.ndarray] = {}
    for cuda_graphs in ("off", "on"):
        config = EngineConfig(
            max_running=max(FULL_SIZE_STREAMS), gpu_memory_utilization=ENGINE_GIB * 2**30 / total_bytes,
            cuda_graphs=cuda_graphs,
        )  # fmt: skip
        start = time.monotonic()
        harness = Harness(folder, config, device=CUDA)
        harness.core.runner.capture()
        name = f"VoxCPM{generation}, full size, bf16, graphs {cuda_graphs}"
        print(f"     {name}: ready in {time.monotonic() - start:.1f} s; {harness.core.memory}", flush=True)
        first[cuda_graphs] = harness.run(FULL_SIZE_REQUEST).latents[0]
        time_release(report, name, harness)
        if cuda_graphs == "on":
            free_bytes, _ = torch.cuda.mem_get_info()
            report.check(f"{name}, GiB used of its share", (total_bytes - free_bytes) / 2**30, ENGINE_GIB)
        del harness
        gc.collect()
        torch.cuda.empty_cache()
    to_eager = distance(first["on"].ravel(), first["off"].ravel())
    report.check(f"VoxCPM{generation}, full size, first patch, 1 - cosine of graphs to eager", to_eager, 1e-2)


def time_release(report: Report, name: str, harness: Harness) -> None:
    model = harness.core.runner.model
    for num_streams in FULL_SIZE_STREAMS:
        received = [harness.add(FULL_SIZE_REQUEST) for _ in range(num_streams)]
        step_ms = timed_steps(harness.step, lambda: harness.core.has_work)
        finite = all(np.isfinite(stream.audio).all() for stream in received)
        report.check(f"{name}, {num_streams} streams, not finite", float(not finite), 0)
        context = len(received[0].patches) + FULL_SIZE_REQUEST.target_text.count(" ")
        limit_ms = step_limit(model, num_streams, context, SamplingParams().inference_timesteps, this_card()).total_ms
        print(f"     {name}, {num_streams} streams: {step_ms:.2f} ms a step, "
              f"{100 * limit_ms / step_ms:.0f} % of what the card allows ({limit_ms:.2f} ms)", flush=True)


def timed_steps(step: Callable[[], None], has_work: Callable[[], bool]) -> float:
    """Median wall time of the steps, in ms."""
    times = []
    while has_work():
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


# By name; each takes a folder of its own.
SECTIONS: dict[str, Callable[[Report, Path], None]] = {
    "kernels": lambda report, root: check_kernels(report.check),
    **{
        f"loras-{name}": partial(lambda report, root, dtype: check_lora_kernels(report.check, dtype), dtype=dtype)
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    },
    "loras-engine": lambda report, root: check_lora_engines(report.check, root),
    **{f"laws-{generation}": partial(check_laws, generation=generation) for generation in RELEASES},
    "fp8": lambda report, root: check_fp8(report.check, root),
    "flash": lambda report, root: check_flash(report.check, root),
    "chain": lambda report, root: check_chain(report.check, "cuda:0"),
    "noise": lambda report, root: check_noise(report),
    "encoders": lambda report, root: check_encoders(report.check),
    "second-uses": lambda report, root: check_second_uses(report.check, tiny_checkpoint(root, "2"), CUDA),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=list(RELEASES), help="released sizes to load and run")
    parser.add_argument("--only", choices=SECTIONS, help="that section alone, and no released size")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 1
    # The package's matrix products are exact fp32 where the model is fp32.
    torch.backends.cuda.matmul.allow_tf32 = False
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        if arguments.only:
            report.section(arguments.only, SECTIONS[arguments.only], report, root)
            return min(report.num_failed, 1)
        print(as_line(describe()), flush=True)
        failed = run_apart("benchmarks.gpu_check", list(SECTIONS), root, LIMIT_S)
        # Alone on the GPU: they are timed, and their memory is counted.
        report.section("faults", check_faults, report.check)
        for generation in arguments.sizes:
            report.section(f"VoxCPM{generation}", check_release, report, generation, root)
    if report.num_failed:
        failed.append(f"{report.num_failed} of faults and released sizes")
    print(f"FAILED: {', '.join(failed)}" if failed else "all checks passed")
    return min(len(failed), 1)


if __name__ == "__main__":
    sys.exit(main())
