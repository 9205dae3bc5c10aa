"""Whole stacks as one kernel on a CUDA device, in processes that are killed should one hang: part of `gpu_check`."""

from __future__ import annotations

import dataclasses
import sys

import torch

from benchmarks.gpu_kernels import Check
from benchmarks.stacks.candidates import stack_plans
from benchmarks.stacks.cases import Case, release_cases
from benchmarks.stacks.child import Child, Hung
from benchmarks.stacks.compiling import StackJob
from benchmarks.stacks.tune import compile_stacks
from voxcpm_core.kernels.triton_grid import MIN_CAPABILITY

GENERATION = "2"
COMPILING_S, ANSWER_S = 150.0, 120.0


def check_stacks(check: Check) -> None:
    """Of VoxCPM2, for one stream, some, and the most, with the likeliest plan and one that splits nothing."""
    if torch.cuda.get_device_capability() < MIN_CAPABILITY:
        print("     this GPU has no kernel of whole stacks: not checked", flush=True)
        return
    num_processors = torch.cuda.get_device_properties(0).multi_processor_count
    cases = {number: case for number, case in enumerate(release_cases()) if case.name.startswith(GENERATION)}
    jobs = {number: _jobs(case, num_processors) for number, case in cases.items()}
    compile_stacks([job for some in jobs.values() for job in some], COMPILING_S)
    for number, some in jobs.items():
        _check_case(check, number, some)


def _jobs(case: Case, num_processors: int) -> list[StackJob]:
    batches = case.batches
    found = []
    for batch in dict.fromkeys((batches[0], batches[len(batches) // 2], batches[-1])):
        plans = stack_plans(case.shape(), case.num_rows(batch), num_processors)
        found += [StackJob(case, batch, plan, num_processors) for plan in dict.fromkeys((plans[0], plans[-1]))]
    return found


def _check_case(check: Check, number: int, jobs: list[StackJob]) -> None:
    child: Child | None = None
    for case, batch, plan, _ in jobs:
        name = f"stack {case.name}, {case.num_rows(batch)} rows, {plan}"
        child = child or Child([sys.executable, "-m", "benchmarks.stacks.check", str(number)])
        try:
            answer = child.ask({"batch": batch, "plan": dataclasses.asdict(plan)}, ANSWER_S)
        except (Hung, EOFError) as failure:
            check(f"{name}: {failure}", float("inf"), 0)
            child.close()
            child = None
            continue
        for figure, value, limit in answer["figures"]:
            check(f"{name}, {figure}", value, limit)
    if child:
        child.close()
