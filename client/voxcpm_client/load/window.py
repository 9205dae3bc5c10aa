"""The part of a load in which speech per second is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from voxcpm_client.load.outcome import Outcome
from voxcpm_client.load.patterns import Clients, Pattern


@dataclass(frozen=True)
class Window:
    """The time in which speech per second is counted.

    `is_steady`: all clients are at work, or arrivals have gone on for as long as the first utterance lasted. Otherwise,
    when there was no such time, or less of it than any request took, it is the whole load.
    """

    begin_s: float  # by time.perf_counter
    end_s: float
    is_steady: bool

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


def find_window(pattern: Pattern, heard: Sequence[Outcome]) -> Window | None:
    """Where to count speech per second; None when there was none."""
    if not heard:
        return None
    if isinstance(pattern, Clients):
        first: dict[int, float] = {}
        last: dict[int, float] = {}
        for outcome in heard:
            first.setdefault(outcome.client, outcome.arrived_s[0] if outcome.arrived_s else outcome.ended_s)
            last[outcome.client] = outcome.ended_s
        begin_s, end_s = max(first.values()), min(last.values())
    else:
        begin_s, end_s = min(outcome.ended_s for outcome in heard), max(outcome.sent_s for outcome in heard)
    if begin_s < end_s and end_s - begin_s >= min(outcome.ended_s - outcome.sent_s for outcome in heard):
        return Window(begin_s, end_s, is_steady=True)
    whole = Window(min(outcome.sent_s for outcome in heard), max(outcome.ended_s for outcome in heard), is_steady=False)
    return whole if whole.length_s > 0 else None


def audio_within(outcome: Outcome, window: Window) -> float:
    """Seconds of the request's audio that came within the window."""
    chunks = zip(outcome.arrived_s, outcome.durations_s, strict=True)
    return sum(duration_s for at_s, duration_s in chunks if window.begin_s < at_s <= window.end_s)
