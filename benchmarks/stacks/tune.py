"""Whole stacks as one kernel beside their blocks one by one: which plan is right, and up to how many rows it pays."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from benchmarks.card import CARDS
from benchmarks.products.compiling import compile_with
from benchmarks.stacks.candidates import stack_plans
from benchmarks.stacks.cases import Case, num_bytes, release_cases
from benchmarks.stacks.child import Child, Hung
from benchmarks.stacks.compiling import StackJob, compile_stack
from voxcpm_core.kernels.product_configs import Gpu
from voxcpm_core.kernels.stack_plan import PlanThreshold, StackPlan, StackTable

ANSWER_S, FIRST_ANSWER_S = 30.0, 90.0  # the first comes after weights and reference are made
COMPILING_SHARE = 0.6  # of the time, at most
MAX_HUNG = 2  # more would only take their time
LEAST_GAIN = 0.97  # of the time of blocks one by one; less is not worth a kernel more to compile

StackTimings = dict[StackPlan | None, float]  # microseconds; None: blocks one by one
StartChild = Callable[[int], Child]
Compile = Callable[[list[StackJob], float], set[StackJob]]


def compile_stacks(jobs: list[StackJob], seconds: float) -> set[StackJob]:
    return compile_with(compile_stack, jobs, seconds)


def start_measuring(number: int) -> Child:
    return Child([sys.executable, "-m", "benchmarks.stacks.measure", str(number)])


class StackSearch:
    """What was found is known at any time, also after an error."""

    def __init__(
        self, gpu: Gpu, compile_all: Compile = compile_stacks, start_child: StartChild = start_measuring,
        cases: list[Case] | None = None,
    ) -> None:
        self.found: dict[tuple[Case, int], StackTimings] = {}  # by case and streams
        self.num_failed = self._num_hung = 0
        self._gpu, self._end_s = gpu, 0.0
        self._compile, self._start_child = compile_all, start_child
        self._cases = release_cases() if cases is None else cases
        self._done: set[StackJob] = set()

    def _jobs(self, case: Case, batch: int) -> list[StackJob]:
        num_processors = self._gpu.num_processors
        plans = stack_plans(case.shape(), case.num_rows(batch), num_processors)
        return [StackJob(case, batch, plan, num_processors) for plan in plans]

    def run(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds
        wanted = [self._jobs(case, batch) for case in self._cases for batch in case.batches]
        # The likeliest of each first, should the time not do.
        jobs = [job for turn in zip_longest(*wanted) for job in turn if job]
        print(f"compiling {len(jobs)} kernels of whole stacks", flush=True)
        self._done = self._compile(jobs, seconds * COMPILING_SHARE)
        print("stack                rows  one by one us  best us   GB/s  %lim  plan")
        for number, case in enumerate(self._cases):
            self._run_case(number, case)

    def _run_case(self, number: int, case: Case) -> None:
        child: Child | None = None
        for batch in case.batches:
            timings: StackTimings = {}
            for plan in (None, *(job.plan for job in self._jobs(case, batch) if job in self._done)):
                if time.monotonic() >= self._end_s or self._num_hung > MAX_HUNG:
                    break  # what follows is not measured
                timeout_s = ANSWER_S if child else FIRST_ANSWER_S
                child = child or self._start_child(number)
                child = self._measure(child, case, batch, plan, timings, timeout_s)
                if plan is None and not timings:
                    break  # nothing to compare with
            if timings:
                self.found[case, batch] = timings
                print(line_of(case, batch, timings, self._gpu.name), flush=True)
        if child:
            child.close()

    def _measure(
        self, child: Child, case: Case, batch: int, plan: StackPlan | None, timings: StackTimings, timeout_s: float
    ) -> Child | None:
        """Returns the child if it can be asked again."""
        failure, alive = "", True
        try:
            answer = child.ask({"batch": batch, "plan": plan and dataclasses.asdict(plan)}, timeout_s)
            failure = answer["failure"]
            if answer["us"] is not None:
                timings[plan] = answer["us"]
        except (Hung, EOFError) as error:
            failure, alive = str(error), False
            self._num_hung += 1
            child.close()
        if failure:
            self.num_failed += 1
            print(f"  FAIL {case.name}, {case.num_rows(batch)} rows, {plan}: {failure}", flush=True)
        return child if alive else None

    def table(self) -> StackTable:
        """The fastest plans; shapes whose blocks are faster one by one at any number of rows are left out."""
        table: StackTable = {}
        for (case, batch), timings in self.found.items():
            best = _best(timings)
            thresholds = table.setdefault(case.shape(), [])
            if thresholds and thresholds[-1].plan == best:
                thresholds.pop()
            thresholds.append(PlanThreshold(case.num_rows(batch), best))
        kept = {shape: _without_last_none(thresholds) for shape, thresholds in table.items()}
        return {shape: thresholds for shape, thresholds in kept.items() if thresholds}

    def rows(self) -> list[dict[str, Any]]:
        """For a report."""
        return [
            {
                "stack": case.name, "streams": batch, "rows": case.num_rows(batch), "one_by_one_us": timings[None],
                "plans": [{**dataclasses.asdict(plan), "us": us} for plan, us in timings.items() if plan],
            }
            for (case, batch), timings in self.found.items()
        ]  # fmt: skip


def _best(timings: StackTimings) -> StackPlan | None:
    best = min(timings, key=timings.__getitem__)
    return best if timings[best] <= LEAST_GAIN * timings[None] else None


def _without_last_none(thresholds: list[PlanThreshold]) -> list[PlanThreshold]:
    """A table that ends says as much."""
    return thresholds[:-1] if thresholds[-1].plan is None else thresholds


def line_of(case: Case, batch: int, timings: StackTimings, gpu_name: str) -> str:
    """`%lim`: share of the card's bandwidth; with many rows products bind, and it says little."""
    best = min(timings, key=timings.__getitem__)
    bytes_read, us, card = num_bytes(case.config, batch, case.num_tokens == 0), timings[best], CARDS.get(gpu_name)
    gb_per_s = bytes_read / us / 1e3
    share = 100 * gb_per_s / card.gb_per_s if card else float("nan")
    return (f"{case.name:20} {case.num_rows(batch):4} {timings[None]:14.1f} {us:8.1f} {gb_per_s:6.0f} {share:5.0f}  "
            f"{best or 'one by one'}")  # fmt: skip
