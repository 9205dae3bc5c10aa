"""Whether a worker that died is started again."""

from __future__ import annotations

MAX_CRASHES = 5  # in a row
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0


class RestartPolicy:
    """Counts crashes without a generated patch between them."""

    def __init__(self) -> None:
        self._num_crashes = 0

    @property
    def gave_up(self) -> bool:
        return self._num_crashes >= MAX_CRASHES

    def worked(self) -> None:
        """The worker has generated something for a caller."""
        self._num_crashes = 0

    def crashed(self) -> float:
        """One more crash; returns how many seconds to wait before the next start, longer each time."""
        self._num_crashes += 1
        return min(FIRST_PAUSE_S * 4.0 ** (self._num_crashes - 1), MAX_PAUSE_S)
