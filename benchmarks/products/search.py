"""The fastest way to run each product: all candidates compiled and timed, then the best with dependent launch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.products.candidates import candidates
from benchmarks.products.compiling import Job
from voxcpm_core.kernels.product_configs import ProductConfig, Shape, Table, Threshold

NUM_TRIED_AGAIN = 2  # of the best, with dependent launch
NEARLY = 1.03  # as fast: each config costs an engine that starts a second of compiling
COMPILING_SHARE = 0.5  # of the time, at most


class Point(NamedTuple):
    """A product with so many rows."""

    shape: Shape
    num_rows: int


Timings = dict[ProductConfig | None, float]  # microseconds; None: cuBLAS
Compile = Callable[[Iterable[Job], float], set[Job]]
Measure = Callable[[Point, list[ProductConfig | None]], Timings]
Progress = Callable[[Point, Timings], None]


class Search:
    """Runs within a number of seconds; `found` holds what is known at any time, also after an error."""

    def __init__(self, shapes: dict[Shape, list[int]], compile_all: Compile, measure: Measure, seconds: float) -> None:
        self.found: dict[Point, Timings] = {}
        self._points = [Point(shape, num_rows) for shape, rows in shapes.items() for num_rows in rows]
        self._compile, self._measure = compile_all, measure
        self._start, self._seconds = time.monotonic(), seconds

    def run(self, num_processors: int, with_pdl: bool, progress: Progress) -> None:
        """`with_pdl`: the device has programmatic dependent launch. `progress` hears of each point's best."""
        wanted = {point: candidates(*point, num_processors) for point in self._points}
        print(f"compiling {len(_jobs(wanted))} kernels", flush=True)
        self._measure_compiled(wanted, [None], progress)
        if with_pdl:
            again = {point: _with_pdl(self.found.get(point, {})) for point in self._points}
            print(f"compiling {len(_jobs(again))} kernels with dependent launch", flush=True)
            self._measure_compiled(again, [], progress)

    def _left_s(self) -> float:
        return self._seconds - (time.monotonic() - self._start)

    def _measure_compiled(
        self, wanted: dict[Point, list[ProductConfig]], beside: list[None], progress: Progress
    ) -> None:
        done = self._compile(_jobs(wanted), self._left_s() * COMPILING_SHARE)
        for point, configs in wanted.items():
            if self._left_s() <= 0:
                print("  the time is over; what follows is not measured", flush=True)
                return
            ready = [config for config in configs if Job(point.shape, config) in done]
            timings = self._measure(point, [*beside, *ready])
            self.found[point] = {**self.found.get(point, {}), **timings}
            progress(point, self.found[point])

    def table(self) -> Table:
        """The fastest of each point, or that of the next larger one where it is nearly as fast."""
        table: Table = {}
        for point, timings in reversed(self.found.items()):
            if timings:
                best = min(timings, key=timings.__getitem__)
                thresholds = table.setdefault(point.shape, [])
                larger = thresholds[0].config if thresholds else best
                if timings.get(larger, float("inf")) <= NEARLY * timings[best]:
                    best = larger
                thresholds.insert(0, Threshold(point.num_rows, best))
        return table


def _jobs(wanted: dict[Point, list[ProductConfig]]) -> list[Job]:
    """Without repeats, one of each point in turn, so that no point is left without when the time is over."""
    longest = max((len(configs) for configs in wanted.values()), default=0)
    turns = (
        Job(point.shape, configs[turn])
        for turn in range(longest) for point, configs in wanted.items() if turn < len(configs)
    )  # fmt: skip
    return list(dict.fromkeys(turns))


def _with_pdl(timings: Timings) -> list[ProductConfig]:
    own = sorted((config for config in timings if config is not None), key=lambda config: timings[config])
    return [dataclasses.replace(config, pdl=True) for config in own[:NUM_TRIED_AGAIN]]
