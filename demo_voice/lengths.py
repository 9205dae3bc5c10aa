"""How long speech is beside the source's speech of the same text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_TOLERANCE = 0.25
_RUNAWAY, _EARLY_STOP = 1.5, 1 / 1.5


@dataclass(frozen=True)
class Lengths:
    """Of many sentences; a ratio is the length made, divided by the source's."""

    share_within_25_percent: float
    num_runaways: int
    num_early_stops: int
    median_ratio: float


def compare_lengths(made_s: Sequence[float], source_s: Sequence[float]) -> Lengths:
    """Lengths of the same sentences in the same order, in seconds. Half as long again is a runaway; two thirds is an
    early stop."""
    ratios = [made / source for made, source in zip(made_s, source_s, strict=True)]
    return Lengths(
        share_within_25_percent=sum(abs(ratio - 1) <= _TOLERANCE for ratio in ratios) / len(ratios),
        num_runaways=sum(ratio > _RUNAWAY for ratio in ratios),
        num_early_stops=sum(ratio < _EARLY_STOP for ratio in ratios),
        median_ratio=median(ratios),
    )
