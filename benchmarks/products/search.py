"""The fastest way to run each product.

All candidates are compiled and timed, then the best with dependent launch. Or, of products with many rows, what
libraries have is timed beside what the table says.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.products.candidates import candidates
from benchmarks.products.compiling import Job
from voxcpm_core.kernels.product_configs import Config, LtConfig, ProductConfig, Shape, Table, Threshold, choose

NUM_TRIED_AGAIN = 2  # of the best, with dependent launch
NEARLY = 1.03  # as fast: each config costs an engine that starts a second of compiling
COMPILING_SHARE = 0.5  # of the time, at most


class Point(NamedTuple):
    """A product with so many rows."""

    shape: Shape
    num_rows: int


Timings = dict[Config, float]  # microseconds
Compile = Callable[[Iterable[Job], float], set[Job]]
Measure = Callable[[Point, list[Config]], Timings]
Libraries = Callable[[Point], list[LtConfig]]
Progress = Callable[[Point, Timings], None]


class Search:
    """Runs within a number of seconds; `found` holds what is known at any time, also after an error."""

    def __init__(
        self, shapes: dict[Shape, list[int]], compile_all: Compile, measure: Measure, libraries: Libraries,
        seconds: float,
    ) -> None:
        """`libraries`: what may be named of them for a product, beside what torch takes."""
        self.found: dict[Point, Timings] = {}
        self._points = [Point(shape, num_rows) for shape, rows in shapes.items() for num_rows in rows]
        self._compile, self._measure, self._libraries = compile_all, measure, libraries
        self._start, self._seconds = time.monotonic(), seconds

    def run(self, num_processors: int, with_pdl: bool, progress: Progress) -> None:
        """`with_pdl`: the device has programmatic dependent launch. `progress` hears of each point's best."""
        wanted = {point: candidates(*point, num_processors) for point in self._points}
        print(f"compiling {len(_jobs(wanted))} kernels", flush=True)
        self._measure_compiled(wanted, with_libraries=True, progress=progress)
        if with_pdl:
            again = {point: _with_pdl(self.found.get(point, {})) for point in self._points}
            print(f"compiling {len(_jobs(again))} kernels with dependent launch", flush=True)
            self._measure_compiled(again, with_libraries=False, progress=progress)

    def run_libraries(self, table: Table, num_processors: int, progress: Progress) -> None:
        """Times what libraries have, beside the config that `table` has for each point."""
        usual = {point: choose(table, *point, num_processors) for point in self._points}
        own = {point: [config] for point, config in usual.items() if isinstance(config, ProductConfig)}
        wanted = {point: own.get(point, []) for point in self._points}
        self._measure_compiled(wanted, with_libraries=True, progress=progress)

    def _left_s(self) -> float:
        return self._seconds - (time.monotonic() - self._start)

    def _measure_compiled(
        self, wanted: dict[Point, list[ProductConfig]], with_libraries: bool, progress: Progress
    ) -> None:
        done = self._compile(_jobs(wanted), self._left_s() * COMPILING_SHARE)
        for point, configs in wanted.items():
            if self._left_s() <= 0:
                print("  the time is over; what follows is not measured", flush=True)
                return
            ready = [config for config in configs if Job(point.shape, config) in done]
            libraries = [None, *self._libraries(point)] if with_libraries else []
            timings = self._measure(point, [*libraries, *ready])
            self.found[point] = {**self.found.get(point, {}), **timings}
            progress(point, self.found[point])

    def table_over(self, before: Table, num_processors: int) -> Table:
        """`before`, but for what was found, from the fewest rows of a product to the most.

        What it does not have with fewer rows is left out: those would no longer be the rule's.
        """
        table = dict(before)
        for shape, found in self.table().items():
            last = found[0].max_rows - 1
            usual = before.get(shape, [])
            if not any(threshold.max_rows >= last for threshold in usual):
                print(f"  {shape}: not in the table before; run without --libraries first", flush=True)
                continue
            fewer = [threshold for threshold in usual if threshold.max_rows < last]
            more = [threshold for threshold in usual if threshold.max_rows > found[-1].max_rows]
            here = Threshold(last, choose(before, shape, last, num_processors))
            table[shape] = [*fewer, here, *found, *more]
        return table

    def table(self) -> Table:
        """The fastest of each point. What is nearly as fast takes its place: torch's choice that of a named algorithm,
        and what the next larger point has that of another.
        """
        table: Table = {}
        for point, timings in reversed(self.found.items()):
            if timings:
                best = min(timings, key=timings.__getitem__)
                nearly = NEARLY * timings[best]
                if isinstance(best, LtConfig) and timings.get(None, math.inf) <= nearly:
                    best = None
                thresholds = table.setdefault(point.shape, [])
                larger = thresholds[0].config if thresholds else best
                if timings.get(larger, math.inf) <= nearly:
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
    own = [config for config in timings if isinstance(config, ProductConfig)]
    own.sort(key=lambda config: timings[config])
    return [dataclasses.replace(config, pdl=True) for config in own[:NUM_TRIED_AGAIN]]
