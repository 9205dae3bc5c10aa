"""From a pattern to the shares of the processes, and from their results to a row."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice, takewhile

from voxcpm_client.load.asking import Script
from voxcpm_client.load.crew import Crew
from voxcpm_client.load.patterns import Arrivals, Clients, Pattern
from voxcpm_client.load.row import Row, make_row
from voxcpm_client.load.share import ClosedShare, OpenShare, Share

_LEAD_S = 0.1  # from planning until the first request is sent
_ENDLESS = 2**40  # requests


@dataclass(frozen=True)
class Limits:
    """When a row ends: after so many requests, or so long after its first; whichever comes first. None: no such end."""

    num_requests: int | None = None
    duration_s: float | None = None

    def __post_init__(self) -> None:
        if self.num_requests is not None and self.num_requests < 1:
            raise ValueError(f"requests: expected at least 1, got {self.num_requests}")
        if self.duration_s is not None and not self.duration_s > 0:
            raise ValueError(f"duration: expected a time above 0 s, got {self.duration_s:g}")


def make_shares(
    script: Script, pattern: Pattern, limits: Limits, num_processes: int, begin_s: float, seed: int
) -> list[Share]:
    """What each process does from `begin_s` on. Raises ValueError for arrivals without an end."""
    if isinstance(pattern, Clients):
        num_shares = min(num_processes, pattern.count)
        total = _ENDLESS if limits.num_requests is None else limits.num_requests
        return [
            ClosedShare(
                script,
                clients=range(n, pattern.count, num_shares),
                indices=range(n, total, num_shares),
                begin_s=begin_s,
                begin_apart_s=pattern.begin_over_s / pattern.count,
                duration_s=limits.duration_s,
            )
            for n in range(num_shares)
        ]
    due_s = [begin_s + after_s for after_s in _due(pattern, limits, seed)]
    return [
        OpenShare(script, range(n, len(due_s), num_processes), tuple(due_s[n::num_processes]))
        for n in range(num_processes)
    ]


def _due(pattern: Arrivals, limits: Limits, seed: int) -> list[float]:
    duration_s = float("inf") if limits.duration_s is None else limits.duration_s
    if limits.num_requests is None and min(duration_s, pattern.over_s) == float("inf"):
        raise ValueError("arrivals at a rate need a number of requests or a duration")
    times_s = takewhile(lambda at_s: at_s <= duration_s, pattern.times_s(seed))
    return list(islice(times_s, limits.num_requests))


def measure(crew: Crew, script: Script, pattern: Pattern, limits: Limits, seed: int) -> Row:
    """Make the load and sum up what its callers met; less of it when the crew is stopped meanwhile."""
    begin_s = time.perf_counter() + _LEAD_S
    results = crew.run(make_shares(script, pattern, limits, crew.num_processes, begin_s, seed))
    wall_s = time.perf_counter() - begin_s
    outcomes = sorted((each for result in results for each in result.outcomes), key=lambda outcome: outcome.sent_s)
    num_unfinished = sum(result.num_unfinished for result in results)
    cpu_pct = 100 * sum(result.cpu_s for result in results) / wall_s
    return make_row(pattern, begin_s, tuple(outcomes), num_unfinished, cpu_pct)


def warm_up(crew: Crew, script: Script, pattern: Pattern, num_requests: int) -> None:
    """Send requests that are not counted, from as many clients as the pattern has. Raises the error of one."""
    clients = Clients(min(num_requests, pattern.count if isinstance(pattern, Clients) else 1))
    row = measure(crew, script, clients, Limits(num_requests), seed=0)
    for outcome in row.outcomes:
        if outcome.error is not None:
            raise outcome.error
