"""Filling Triton's cache on disk with many kernels at once: one process a core, each compiling some."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

import torch

from voxcpm_core.kernels import triton_products
from voxcpm_core.kernels.product_configs import ProductConfig, Shape
from voxcpm_core.kernels.triton_fp8 import knows_float8

SILENCE_S = 30.0  # a process that crashed takes its work along; whoever waits for it gives up after that


class Job(NamedTuple):
    """One kernel to compile."""

    shape: Shape
    config: ProductConfig


def compile_all(jobs: Iterable[Job], seconds: float) -> set[Job]:
    """Compile what can be compiled in that time, and report what cannot. Returns the jobs that are done."""
    waiting, done, start = list(jobs), set(), time.monotonic()
    num_processes = max(1, min(len(waiting), len(os.sched_getaffinity(0))))
    with multiprocessing.get_context("spawn").Pool(num_processes) as pool:
        results = pool.imap_unordered(_compiled, waiting)
        for number in range(1, len(waiting) + 1):
            left = seconds - (time.monotonic() - start)
            try:
                job, error = results.next(min(SILENCE_S, max(left, 0.0)))
            except multiprocessing.TimeoutError:
                print(f"  {len(waiting) - number + 1} kernels not compiled in time", flush=True)
                break
            if error:
                print(f"  cannot compile {job.shape} {job.config}: {error}", flush=True)
            else:
                done.add(job)
            if number % 100 == 0 or number == len(waiting):
                print(f"  compiled {number} of {len(waiting)} in {time.monotonic() - start:.0f} s", flush=True)
    return done


def _compiled(job: Job) -> tuple[Job, str]:
    try:
        compile_one(job)
    except Exception as error:  # whatever the compiler does not like; the others go on
        return job, f"{type(error).__name__}: {str(error)[:200]}"
    return job, ""


def compile_one(job: Job) -> None:
    """As a launch with torch's tensors would, which then finds it in the cache."""
    shape, config = job
    dtype = getattr(torch, shape.dtype)
    weight, scales = (torch.uint8, torch.float32) if shape.fp8 else (dtype, dtype)
    parts = torch.float32 if config.splits > 1 else dtype
    # As a decode step runs it, in which the rows of q, k and v may be scaled later.
    norm = config.norm_way(shape.op, defers=shape.op == "norm_linear")
    knows_fp8 = knows_float8(torch.device("cuda", torch.cuda.current_device()))
    triton_products._product.warmup(
        dtype, weight, scales, dtype, dtype, parts, torch.int32, 22, 1.0, 1e-5,
        **triton_products.constants(shape, config, norm, knows_fp8), **triton_products.options(config),
        grid=(1, 1, 1),
    )  # fmt: skip
