"""The search for plans of whole stacks, with processes and compilers of its own, since it needs a GPU otherwise."""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import partial

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this machine")

from benchmarks.stacks import compiling, measure, tune
from benchmarks.stacks.candidates import SHARED_BYTES, stack_plans
from benchmarks.stacks.cases import Case, StackInputs, num_bytes, release_cases
from benchmarks.stacks.child import Child, Hung
from benchmarks.stacks.compiling import StackJob, compile_stack
from benchmarks.stacks.tune import StackSearch, line_of
from tests.kernels.stacks import small_config
from voxcpm_core.kernels import triton_fused_stack
from voxcpm_core.kernels.product_configs import NUM_COUNTERS, TUNED, Gpu, read_table, table_json
from voxcpm_core.kernels.stack_plan import MAX_ROWS, StackPlan, choose_plan, read_stacks, stacks_json
from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps

NUM_PROCESSORS = 132
GPU = Gpu("GPU", "9.0", NUM_PROCESSORS)
DIT = next(case for case in release_cases() if case.name == "2 DiT")

# Answers as `benchmarks.stacks.measure` does: a plan takes as many microseconds as its passes are wide, and blocks one
# by one 200. For two streams plans of eight warps never answer.
STAND_IN = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    plan = asked["plan"]
    if plan and plan["num_warps"] == 8 and asked["batch"] == 2:
        time.sleep(60)
    us = 200.0 if plan is None else float(plan["block_k"])
    print(json.dumps({"us": us, "error": 0.0, "failure": ""}), flush=True)
"""


def start_stand_in(number: int) -> Child:
    return Child([sys.executable, "-c", STAND_IN])


@pytest.fixture
def search(monkeypatch):
    monkeypatch.setattr(tune, "ANSWER_S", 1.0)
    monkeypatch.setattr(tune, "FIRST_ANSWER_S", 3.0)
    return StackSearch(GPU, lambda jobs, seconds: set(jobs), start_stand_in, [DIT])


def test_every_stack_of_the_releases_has_plans_that_fit():
    cases = release_cases()
    assert len({case.shape() for case in cases}) == len(cases) == 7
    for case in cases:
        assert case.batches[0] == 1
        for batch in case.batches:
            assert case.num_rows(batch) <= MAX_ROWS
            plans = stack_plans(case.shape(), case.num_rows(batch), NUM_PROCESSORS)
            assert plans
            for plan in plans:
                widest = max(plan.block_m + tile[0] for tile in (plan.qkv, plan.o, plan.down))
                widest = max(widest, plan.block_m + 2 * plan.gate_up[0])
                assert 2 * widest * plan.block_k * plan.num_stages <= SHARED_BYTES
                num_blocks = -(-case.num_rows(batch) // plan.block_m)
                assert num_blocks * -(-case.config.ffn_size // plan.gate_up[0]) <= NUM_COUNTERS


def test_a_kernel_that_hangs_is_left_out_and_the_rest_goes_into_the_table(search, tmp_path):
    search.run(60.0)
    plans = {batch: stack_plans(DIT.shape(), DIT.num_rows(batch), NUM_PROCESSORS) for batch in DIT.batches}
    hung = [plan for plan in plans[2] if plan.num_warps == 8]
    assert search.num_failed == len(hung) > 0
    for batch in DIT.batches:
        left = [plan for plan in plans[batch] if batch != 2 or plan not in hung]
        assert set(search.found[DIT, batch]) == {None, *left}
    table = search.table()
    (tmp_path / "gpu.json").write_text(json.dumps({**table_json(GPU, {}), "stacks": stacks_json(table)}))
    assert read_stacks(GPU, tmp_path) == table
    assert read_table(GPU, tmp_path) == {}
    (shape,) = table
    assert shape == DIT.shape()
    for batch in DIT.batches:
        timings = search.found[DIT, batch]
        assert choose_plan(table, shape, DIT.num_rows(batch)) == min(timings, key=timings.__getitem__)
    assert choose_plan(table, shape, table[shape][-1].max_rows + 1) is None
    assert choose_plan(table, shape._replace(num_tokens=3), 1) is None


def test_when_many_hang_nothing_more_is_tried(search, monkeypatch):
    monkeypatch.setattr(tune, "MAX_HUNG", 0)
    search.run(60.0)
    assert search.num_failed == 1
    assert {batch for _, batch in search.found} == {1, 2}
    assert all(plan is None or plan.num_warps == 4 for plan in search.found[DIT, 2])


def test_stacks_that_gain_nothing_are_not_in_the_table(search):
    plans = {batch: stack_plans(DIT.shape(), DIT.num_rows(batch), NUM_PROCESSORS)[0] for batch in DIT.batches}
    for batch, plan in plans.items():
        search.found[DIT, batch] = {None: 100.0, plan: 99.0}
    assert search.table() == {}
    search.found[DIT, 2] = {None: 100.0, plans[2]: 50.0}
    thresholds = search.table()[DIT.shape()]
    assert [(rows, plan and plan.block_m) for rows, plan in thresholds] == [(22, None), (44, plans[2].block_m)]


def test_no_table_that_ships_runs_whole_stacks():
    for file in TUNED.glob("*.json"):
        assert read_stacks(Gpu(**json.loads(file.read_text())["gpu"])) == {}


def test_a_plan_is_read_as_it_was_written():
    plan = StackPlan(16, 128, (16, 1), (16, 2), (32, 1), (16, 4), num_warps=4, num_stages=3)
    assert StackPlan.of(json.loads(json.dumps(dataclasses.asdict(plan)))) == plan


def test_a_line_says_what_share_of_the_bandwidth_a_stack_reaches():
    read = num_bytes(DIT.config, 1, False)
    assert read == 12 * 2 * 1024 * (2 * 2048 + 2 * 256 + 3 * 4096)
    least_us, plan = read / 4800e3, stack_plans(DIT.shape(), 22, NUM_PROCESSORS)[0]
    line = line_of(DIT, 1, {None: 2 * least_us, plan: least_us}, "NVIDIA H200")
    assert " 4800   100 " in line


def test_a_child_that_ends_says_so():
    child = Child([sys.executable, "-c", "input()"])
    with pytest.raises(EOFError, match="ended with 0"):
        child.ask({}, 20.0)
    child.close()
    silent = Child([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(Hung, match="no answer"):
        silent.ask({}, 0.1)
    silent.close()


class Recorder:
    """In the place of a kernel: what it is launched or compiled with."""

    def __getitem__(self, grid):
        return self.warmup

    def warmup(self, *arguments, grid=None, **constants):
        self.kinds = [
            value.dtype if isinstance(value, torch.Tensor) else value if isinstance(value, torch.dtype) else type(value)
            for value in arguments
        ]  # fmt: skip
        self.constants = constants


@pytest.mark.parametrize("name", ["2 DiT", "2 base LM"])
def test_what_is_compiled_is_what_is_launched(name, monkeypatch):
    case = next(case for case in release_cases() if case.name == name)
    plan = stack_plans(case.shape(), case.num_rows(4), NUM_PROCESSORS)[0]
    launched, compiled = Recorder(), Recorder()
    monkeypatch.setattr(triton_fused_stack, "stack_kernel", launched)
    monkeypatch.setattr(triton_fused_stack, "_num_programs", lambda device: NUM_PROCESSORS)
    monkeypatch.setattr(compiling, "stack_kernel", compiled)
    inputs = StackInputs(case, torch.device("cpu"), num_layers=1)
    ops = TritonLayerOps(torch.device("cpu"), plans=lambda shape, num_rows: plan)
    inputs.stack(ops)(inputs.x(4), inputs.attention(4), slice(*case.kept))
    compile_stack(StackJob(case, 4, plan, NUM_PROCESSORS))
    assert compiled.kinds == launched.kinds
    assert compiled.constants == launched.constants


def test_results_are_held_against_float64(monkeypatch):
    case = Case("small", small_config(), 3, 1, (None, None))
    monkeypatch.setattr(measure, "DEVICE", torch.device("cpu"))
    monkeypatch.setattr(measure, "release_cases", lambda: [case])
    monkeypatch.setattr(measure, "StackInputs", partial(StackInputs, dtype=torch.float32))
    monkeypatch.setattr(measure, "NUM_REPEATS", 1)
    measuring = measure.Measuring(0)
    plan = StackPlan(16, 64, (128, 1), (64, 1), (128, 1), (64, 1), num_warps=4, num_stages=2)
    assert measuring.error(1, plan) < 1e-6
    exact = measuring._exact
    monkeypatch.setattr(measuring, "_exact", lambda *arguments: exact(*arguments) * 1.01)
    assert measuring.error(1, plan) > 5e-3
