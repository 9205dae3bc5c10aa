"""Compiling the kernel of a whole stack ahead of its first launch."""

from __future__ import annotations

from typing import NamedTuple

import torch

from benchmarks.stacks.cases import PAGE_SIZE, Case
from voxcpm_core.kernels.stack_plan import StackPlan
from voxcpm_core.kernels.triton_fused_stack import Attending, constants, options
from voxcpm_core.kernels.triton_stack import stack_kernel


class StackJob(NamedTuple):
    """One kernel to compile."""

    case: Case
    batch: int
    plan: StackPlan
    num_programs: int


def compile_stack(job: StackJob) -> None:
    """As a launch with torch's tensors would, which then finds it in the cache."""
    case, dtype, numbers, floats = job.case, torch.bfloat16, torch.int64, torch.float32
    is_paged = case.num_tokens == 0
    attending = Attending.of(
        case.config, job.batch * case.sequences, max(case.num_tokens, 1), is_paged, dtype, job.num_programs
    )
    stack_kernel.warmup(
        dtype, dtype, numbers, dtype, dtype, floats, dtype, dtype, dtype, floats, torch.int32, torch.int32,
        dtype, dtype, dtype, numbers, numbers, 12, 22, 11, 7, 4, 1, 64, 1024 if is_paged else 0, 1.0, 0.1, 1e-5,
        **constants(case.config, job.plan, attending, PAGE_SIZE if is_paged else 0, False), **options(job.plan),
        grid=(1,),
    )  # fmt: skip
