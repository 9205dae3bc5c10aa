"""Times of work on the GPU, by its own clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

NUM_GROUPS, NUM_CALLS = 5, 5


def median_ms(work: Callable[[], object], join: Callable[[], object] | None = None) -> float:
    """Of one call of `work`, which launches something; over groups of calls that are launched back to back.

    `join` lets the current stream wait for what a group launched elsewhere.
    """
    work()
    times = []
    for _ in range(NUM_GROUPS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(NUM_CALLS):
            work()
        if join is not None:
            join()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / NUM_CALLS)
    return statistics.median(times)
