"""When a player that never waits on purpose has nothing left to play."""

from __future__ import annotations


class Playhead:
    """Starts with the first audio that is added. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._played_until_s: float | None = None
        self.num_underruns = 0

    def add(self, at_s: float, duration_s: float) -> None:
        """Audio of `duration_s` came at `at_s`."""
        if self._played_until_s is None:
            self._played_until_s = at_s
        elif at_s > self._played_until_s and duration_s > 0:
            self.num_underruns += 1
            self._played_until_s = at_s
        self._played_until_s += duration_s
