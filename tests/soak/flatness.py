"""Whether figures stay flat: the median of their last tenth against that of their second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

MEMORY_SHARE, MEMORY_KIB = 0.05, 16 * 1024  # of growth; the larger of the two is let pass
PROCESS_KIB = 8 * 1024  # likewise, for each of several processes of a kind: their allocators settle one by one
SHM_KIB = 4 * 1024  # one step by which each stub's region grows
COUNT = 4  # threads and descriptors: of connections that come and go


@dataclass(frozen=True)
class Trend:
    """One figure over a run."""

    name: str
    tenths: tuple[float, ...]  # medians
    tolerance: float

    @property
    def early(self) -> float:
        return self.tenths[1]

    @property
    def late(self) -> float:
        return self.tenths[-1]

    @property
    def is_flat(self) -> bool:
        return self.late <= self.early + self.tolerance


def trends(samples: Sequence[tuple[float, dict[str, int]]]) -> list[Trend]:
    """`samples`: share of the work done, below 1, and figures by name. A figure that is missing counts as 0."""
    tenths: list[list[dict[str, int]]] = [[] for _ in range(10)]
    for done, sample in samples:
        tenths[min(int(10 * done), 9)].append(sample)
    if not all(tenths):
        raise ValueError("too few samples: a tenth of the run has none; send more requests")
    names = sorted({name for _, sample in samples for name in sample})
    most = {name: max(sample.get(name, 0) for _, sample in samples) for name in names}
    return [_trend(name, tenths, most.get(f"{name.split()[0]} processes", 1)) for name in names]


def _trend(name: str, tenths: Sequence[Sequence[dict[str, int]]], num_processes: int) -> Trend:
    medians = tuple(float(median(sample.get(name, 0) for sample in part)) for part in tenths)
    return Trend(name, medians, _tolerance(name, medians[1], num_processes))


def _tolerance(name: str, value: float, num_processes: int) -> float:
    if name.startswith("/dev/shm"):
        return SHM_KIB
    if name.endswith("processes"):
        return 0
    return max(MEMORY_SHARE * value, MEMORY_KIB, PROCESS_KIB * num_processes) if name.endswith("kib") else COUNT
