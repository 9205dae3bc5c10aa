"""How requests follow one another: a number of clients that never pause, or arrivals at a rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Clients:
    """Closed loop: each client sends its next request when its last one has ended.

    All begin at once, or evenly over `begin_over_s`, so that requests of one length do not go on in step.
    """

    count: int
    begin_over_s: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"clients: expected at least 1, got {self.count}")
        if not 0 <= self.begin_over_s < math.inf:
            raise ValueError(f"begin-over: expected seconds from 0, got {self.begin_over_s:g}")

    def __str__(self) -> str:
        return "1 client" if self.count == 1 else f"{self.count} clients"

    def as_json(self) -> dict[str, object]:
        return {"kind": "closed", "clients": self.count, "begin_over_s": self.begin_over_s}


@dataclass(frozen=True)
class Arrivals:
    """Open loop: Poisson arrivals whose rate goes evenly from one value to another within `over_s`, then ends."""

    from_per_s: float
    to_per_s: float
    over_s: float = math.inf  # for ever only at a constant rate

    def __post_init__(self) -> None:
        for rate in (self.from_per_s, self.to_per_s):
            if not 0 <= rate < math.inf:
                raise ValueError(f"rate: expected a number of requests per second, got {rate:g}")
        if self.from_per_s == self.to_per_s == 0:
            raise ValueError("rate: expected requests per second above 0, got 0")
        if self.over_s <= 0 or (math.isinf(self.over_s) and self.from_per_s != self.to_per_s):
            raise ValueError(f"ramp: expected a time above 0 s, got {self.over_s:g}")

    @property
    def is_constant(self) -> bool:
        return self.from_per_s == self.to_per_s

    def __str__(self) -> str:
        if self.is_constant:
            return f"{self.from_per_s:g}/s"
        return f"{self.from_per_s:g}-{self.to_per_s:g}/s"

    def as_json(self) -> dict[str, object]:
        if self.is_constant:
            return {"kind": "open", "rate_per_s": self.from_per_s}
        return {"kind": "ramp", "from_per_s": self.from_per_s, "to_per_s": self.to_per_s, "over_s": self.over_s}

    def times_s(self, seed: int) -> Iterator[float]:
        """When requests are due, in seconds from the beginning, in order; without end at a constant rate for ever."""
        generator = np.random.default_rng(seed)
        expected = 0.0  # requests up to now, by the rate
        while True:
            expected += generator.exponential()
            at_s = self._when_expected(expected)
            if at_s is None or at_s > self.over_s:
                return
            yield at_s

    def _when_expected(self, num_requests: float) -> float | None:
        """The time by which so many requests are expected: the rate's integral, inverted. None: never."""
        slope = 0.0 if self.is_constant else (self.to_per_s - self.from_per_s) / self.over_s
        if slope == 0.0:
            return num_requests / self.from_per_s
        square = self.from_per_s**2 + 2 * slope * num_requests
        return None if square < 0 else (math.sqrt(square) - self.from_per_s) / slope


Pattern = Clients | Arrivals


def parse_ramp(text: str) -> Arrivals:
    """`FROM:TO:SECONDS`, rates in requests per second. Raises ValueError."""
    parts = text.split(":")
    try:
        from_per_s, to_per_s, over_s = (float(part) for part in parts)
    except ValueError:
        raise ValueError(f"ramp: expected FROM:TO:SECONDS, as 1:10:60, got {text!r}") from None
    return Arrivals(from_per_s, to_per_s, over_s)
