"""Training by the clock: how much of the time is used, the learning rate that follows from it, and progress lines."""

from __future__ import annotations

import math
import time

WARM_UP_FRACTION = 0.02
FINAL_SHARE = 0.02  # of the peak learning rate, at the end
SAVE_INTERVAL_S = 120.0
_LINE_INTERVAL_S = 5.0


class Clock:
    """Wall-clock time since its making, as a share of what is allowed."""

    def __init__(self, minutes: float) -> None:
        self._start_s = time.monotonic()
        self._allowed_s = 60.0 * minutes

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start_s

    @property
    def fraction(self) -> float:
        """0 to 1; 1 when nothing is allowed."""
        return min(1.0, self.elapsed_s / self._allowed_s) if self._allowed_s > 0 else 1.0


def learning_rate_share(fraction: float) -> float:
    """Share of the peak learning rate: a short linear rise, then half a cosine down to FINAL_SHARE."""
    if fraction < WARM_UP_FRACTION:
        return max(fraction / WARM_UP_FRACTION, FINAL_SHARE)
    rest = (fraction - WARM_UP_FRACTION) / (1.0 - WARM_UP_FRACTION)
    return FINAL_SHARE + (1.0 - FINAL_SHARE) * 0.5 * (1.0 + math.cos(math.pi * rest))


class Every:
    """True at most once in so many seconds; the first time at once, or not before they have passed."""

    def __init__(self, seconds: float, at_once: bool = False) -> None:
        self._seconds = seconds
        self._last_s = -math.inf if at_once else time.monotonic()

    def due(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._last_s < self._seconds:
            return False
        self._last_s = now_s
        return True


class Progress:
    """A line of figures at the first step and every few seconds."""

    def __init__(self, phase: str, clock: Clock) -> None:
        self._phase = phase
        self._clock = clock
        self._every = Every(_LINE_INTERVAL_S, at_once=True)
        self._steps_before, self._s_before = 0, 0.0

    def due(self) -> bool:
        return self._every.due()

    def line(self, step: int, figures: dict[str, float]) -> None:
        """Print phase, time, steps, steps per second since the last line, and the figures."""
        elapsed_s = self._clock.elapsed_s
        rate = (step - self._steps_before) / max(elapsed_s - self._s_before, 1e-6)
        self._steps_before, self._s_before = step, elapsed_s
        values = " ".join(f"{name} {value:.4f}" for name, value in figures.items())
        share = self._clock.fraction
        print(f"{self._phase} {elapsed_s:6.0f} s ({share:4.0%}) step {step} {rate:.1f}/s {values}", flush=True)
