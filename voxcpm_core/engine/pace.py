"""When to launch the next step while one runs: late, so that whoever comes still gets into it, but never too late."""

from __future__ import annotations

from collections import deque

NUM_REMEMBERED = 8  # steps
MIN_MARGIN_S = 0.001  # for what the host's clock and its other threads may cost


class Pace:
    """Learns how long steps take on the device and how long the host takes to launch one.

    A step is taken for as short as the shortest of the latest, so that newcomers' prefixes do not count. When a launch
    comes too late after all, since steps have become shorter, all is learnt anew.
    """

    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=NUM_REMEMBERED)
        self._launches_s: deque[float] = deque(maxlen=NUM_REMEMBERED)
        self._began_s: float | None = None  # when the device began the step in flight; None: unknown, or there is none

    def launched(self, took_s: float, was_late: bool) -> None:
        """The host took so long to plan and launch a step. `was_late`: the device had ended the one before by then."""
        self._launches_s.append(took_s)
        if was_late:
            self._steps_s.clear()
            self._began_s = None

    def collected(self, at_s: float, next_in_flight: bool) -> None:
        """A step was collected that left the device free at that time, for the next one if it was there already."""
        if self._began_s is not None:
            self._steps_s.append(at_s - self._began_s)
        self._began_s = at_s if next_in_flight else None

    def slack_s(self, now_s: float) -> float:
        """How long the next launch can wait, 0 if not at all."""
        if self._began_s is None or not self._steps_s:
            return 0.0
        margin_s = MIN_MARGIN_S + 2 * max(self._launches_s, default=0.0)
        return max(0.0, self._began_s + min(self._steps_s) - margin_s - now_s)
