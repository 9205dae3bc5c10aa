"""Measures one stack on a CUDA device: `python -m benchmarks.stacks.measure CASE`, a number of `release_cases`.

Reads plans from standard input, a JSON object a line, and prints one for each: whether it is right and how long it
takes. A process of its own, so that a kernel whose programs wait for each other for ever ends with it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from benchmarks.products.timing import GraphTimer
from benchmarks.stacks.cases import StackInputs, in_double, release_cases
from voxcpm_core.kernels.stack_plan import StackPlan
from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps

DEVICE = torch.device("cuda")
NUM_CHECKED_LAYERS, ERROR_LIMIT, NUM_REPEATS = 2, 2e-2, 10
NUM_CALLS, ROUNDS = 2, (2, 3, 3)  # in a graph, and replays


def ops_with(plan: StackPlan | None) -> TritonLayerOps:
    """None: blocks one by one."""
    return TritonLayerOps(DEVICE, plans=lambda shape, num_rows: plan)


class Measuring:
    """Of one case; checks are made with few layers, whose exact result is quickly there."""

    def __init__(self, number: int) -> None:
        self._case = release_cases()[number]
        self._inputs = StackInputs(self._case, DEVICE)
        self._few = StackInputs(self._case, DEVICE, NUM_CHECKED_LAYERS)
        self._exact = self._few.exact()

    def error(self, batch: int, plan: StackPlan | None) -> float:
        """|found - exact| / |exact|; infinite where it does not repeat."""
        x, attention, kept = self._few.x(batch), self._few.attention(batch), slice(*self._case.kept)
        expected = self._exact(x.double(), in_double(attention), kept)
        stack = self._few.stack(ops_with(plan))
        found = stack(x, attention, kept)
        for _ in range(NUM_REPEATS):
            if not torch.equal(stack(x, attention, kept), found):
                return float("inf")
        return float((found.double() - expected).norm() / expected.norm())

    def microseconds(self, batch: int, plan: StackPlan | None) -> float:
        x, attention, stack = self._inputs.x(batch), self._inputs.attention(batch), self._inputs.stack(ops_with(plan))
        kept = slice(*self._case.kept)
        return GraphTimer(DEVICE).microseconds(lambda _: stack(x, attention, kept), NUM_CALLS, ROUNDS)

    def answer(self, batch: int, plan: StackPlan | None) -> dict[str, Any]:
        """`us`: of the whole stack; None where it is not to be used."""
        try:
            error = self.error(batch, plan)
            us = self.microseconds(batch, plan) if error <= ERROR_LIMIT else None
            return {"us": us, "error": error, "failure": "" if us else f"relative error {error:.1e}"}
        except Exception as failure:  # it does not fit; the others go on
            torch.cuda.synchronize()  # a device that is lost ends all here
            return {"us": None, "error": None, "failure": f"{type(failure).__name__}: {str(failure)[:300]}"}


@torch.inference_mode()
def main(number: int) -> None:
    measuring = Measuring(number)
    for line in sys.stdin:
        asked = json.loads(line)
        plan = asked["plan"] and StackPlan.of(asked["plan"])
        print(json.dumps(measuring.answer(asked["batch"], plan)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
