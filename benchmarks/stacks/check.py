"""Checks one stack's kernel on a CUDA device: `python -m benchmarks.stacks.check CASE`, a number of `release_cases`.

Reads plans from standard input, a JSON object a line, and prints for each a list of names, figures and their limits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.stacks.cases import StackInputs, in_double, release_cases
from benchmarks.stacks.measure import DEVICE, ERROR_LIMIT, NUM_CHECKED_LAYERS, ops_with
from voxcpm_core.kernels.stack_plan import StackPlan

NUM_REPEATS, NUM_BESIDE = 100, 50
BUSY_SIDE, NUM_BUSY = 8192, 4  # of the products that take all processors beside
ERROR_RATIO_LIMIT = 1.5  # of the error of blocks one by one

Figures = list[tuple[str, float, float]]  # name, value, limit


class Checking:
    """Of one case, with few layers, whose exact result is quickly there."""

    def __init__(self, number: int) -> None:
        self._case = release_cases()[number]
        self._kept = slice(*self._case.kept)
        self._inputs = StackInputs(self._case, DEVICE, NUM_CHECKED_LAYERS)
        self._exact = self._inputs.exact()
        self._busy = torch.randn(BUSY_SIDE, BUSY_SIDE, device=DEVICE, dtype=torch.bfloat16)

    def figures(self, batch: int, plan: StackPlan) -> Figures:
        x, attention = self._inputs.x(batch), self._inputs.attention(batch)
        expected = self._exact(x.double(), in_double(attention), self._kept)
        stack, one_by_one = (self._inputs.stack(ops_with(each)) for each in (plan, None))

        def run() -> Tensor:
            return stack(x, attention, self._kept)

        found = run()
        error, error_one_by_one = (
            float((result.double() - expected).norm() / expected.norm())
            for result in (found, one_by_one(x, attention, self._kept))
        )
        return [
            ("relative error", error, ERROR_LIMIT),
            ("error by that of blocks one by one", error / error_one_by_one, ERROR_RATIO_LIMIT),
            (f"results of {NUM_REPEATS} that differ", _num_other(run, found, NUM_REPEATS), 0),
            (f"results of {NUM_REPEATS} replays that differ", self._num_other_replayed(run, found), 0),
            (f"results of {NUM_BESIDE} beside others' kernels that differ", self._num_other_beside(run, found), 0),
        ]

    def _num_other_replayed(self, run: Callable[[], Tensor], expected: Tensor) -> int:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = run()

        def replay() -> Tensor:
            found.zero_()
            graph.replay()
            return found

        return _num_other(replay, expected, NUM_REPEATS)

    def _num_other_beside(self, run: Callable[[], Tensor], expected: Tensor) -> int:
        """While products on another stream take every processor that they can get."""
        beside = torch.cuda.Stream(DEVICE)
        result = torch.empty_like(self._busy)
        beside.wait_stream(torch.cuda.current_stream())

        def run_beside() -> Tensor:
            with torch.cuda.stream(beside):
                for _ in range(NUM_BUSY):
                    torch.mm(self._busy, self._busy, out=result)
            return run()

        num_other = _num_other(run_beside, expected, NUM_BESIDE)
        torch.cuda.synchronize()
        return num_other


def _num_other(run: Callable[[], Tensor], expected: Tensor, count: int) -> int:
    """Summed on the device, so that nothing waits in between."""
    return int(torch.stack([(run() != expected).any() for _ in range(count)]).sum())


@torch.inference_mode()
def main(number: int) -> None:
    checking = Checking(number)
    for line in sys.stdin:
        asked = json.loads(line)
        figures = checking.figures(asked["batch"], StackPlan.of(asked["plan"]))
        print(json.dumps({"figures": figures}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
