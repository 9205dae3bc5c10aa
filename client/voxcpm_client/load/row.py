"""The figures of one load: what its callers met, summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from voxcpm_client.load.outcome import Outcome
from voxcpm_client.load.patterns import Pattern
from voxcpm_client.load.window import Window, audio_within, find_window


@dataclass(frozen=True)
class Spread:
    """Percentiles of a figure, interpolated between the two nearest values."""

    p50: float
    p90: float
    p99: float
    largest: float


@dataclass(frozen=True)
class Row:
    """Spreads are None where nothing was measured. The requests that were cancelled by a stop are not in `outcomes`."""

    pattern: Pattern
    begin_s: float
    outcomes: tuple[Outcome, ...]
    num_unfinished: int
    cpu_pct: float  # of one core, that the generator took
    errors: dict[str, int]  # by code
    ttfa_ms: Spread | None
    gap_ms: Spread | None
    rtf: Spread | None
    lag_ms: Spread | None  # of arrivals
    num_underruns: int
    window: Window | None
    audio_s_per_s: float
    requests_per_s: float

    @property
    def num_ok(self) -> int:
        return sum(outcome.error is None for outcome in self.outcomes)

    def as_json(self) -> dict[str, Any]:
        """Figures, then the requests one by one; times are seconds from the beginning."""
        return {
            "load": self.pattern.as_json(),
            "n": len(self.outcomes),
            "ok": self.num_ok,
            "errors": self.errors,
            "unfinished": self.num_unfinished,
            "ttfa_ms": _spread_json(self.ttfa_ms),
            "gap_ms": _spread_json(self.gap_ms),
            "rtf": _spread_json(self.rtf),
            "lag_ms": _spread_json(self.lag_ms),
            "underruns": self.num_underruns,
            "audio_s": sum(outcome.audio_s for outcome in self.outcomes),
            "audio_s_per_s": self.audio_s_per_s,
            "requests_per_s": self.requests_per_s,
            "window_s": None if self.window is None else self.window.length_s,
            "window_is_steady": self.window is not None and self.window.is_steady,
            "generator_cpu_pct": self.cpu_pct,
            "requests": [_request_json(outcome, self.begin_s) for outcome in self.outcomes],
        }


def make_row(
    pattern: Pattern, begin_s: float, outcomes: Sequence[Outcome], num_unfinished: int, cpu_pct: float
) -> Row:
    """Sum up `outcomes`, in the order of sending. TTFA, gaps, RTF and underruns are of requests without an error."""
    heard = [outcome for outcome in outcomes if outcome.error is None]
    window = find_window(pattern, heard)
    audio_s_per_s = requests_per_s = 0.0
    if window is not None:
        audio_s_per_s = sum(audio_within(outcome, window) for outcome in outcomes) / window.length_s
        num_ended = sum(window.begin_s < outcome.ended_s <= window.end_s for outcome in heard)
        requests_per_s = num_ended / window.length_s
    return Row(
        pattern=pattern,
        begin_s=begin_s,
        outcomes=tuple(outcomes),
        num_unfinished=num_unfinished,
        cpu_pct=cpu_pct,
        errors=dict(sorted(Counter(outcome.code for outcome in outcomes if outcome.error is not None).items())),
        ttfa_ms=spread(outcome.ttfa_ms for outcome in heard),
        gap_ms=spread(gap_ms for outcome in heard for gap_ms in outcome.gaps_ms),
        rtf=spread(outcome.rtf for outcome in heard),
        lag_ms=spread(outcome.lag_ms for outcome in outcomes if outcome.due_s is not None),
        num_underruns=sum(outcome.num_underruns for outcome in heard),
        window=window,
        audio_s_per_s=audio_s_per_s,
        requests_per_s=requests_per_s,
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """None where there are no values."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    p50, p90, p99 = np.percentile(known, (50, 90, 99))
    return Spread(float(p50), float(p90), float(p99), max(known))


def _spread_json(figures: Spread | None) -> dict[str, float] | None:
    return None if figures is None else asdict(figures)


def _request_json(outcome: Outcome, begin_s: float) -> dict[str, Any]:
    return {
        "client": outcome.client,
        "due_s": None if outcome.due_s is None else outcome.due_s - begin_s,
        "sent_s": outcome.sent_s - begin_s,
        "ended_s": outcome.ended_s - begin_s,
        "code": outcome.code,
        "ttfa_ms": outcome.ttfa_ms,
        "largest_gap_ms": max(outcome.gaps_ms, default=None),
        "underruns": outcome.num_underruns,
        "audio_s": outcome.audio_s,
        "rtf": outcome.rtf,
    }
