"""What the caller of one request met."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from voxcpm_client.errors import VoxError
from voxcpm_client.playhead import Playhead

NO_CODE = "NO_CODE"  # of errors of Triton that carry none


@dataclass(frozen=True)
class Outcome:
    """One request that has ended. Times are seconds of `time.perf_counter`, which processes of a machine share."""

    client: int  # of a closed loop; the number of the request in an open one
    due_s: float | None  # when an open loop's schedule wanted it sent
    sent_s: float
    ended_s: float
    arrived_s: tuple[float, ...]  # of the chunks
    durations_s: tuple[float, ...]  # of the chunks' audio
    error: VoxError | None = None

    @property
    def code(self) -> str:
        """Of the error; "" without one."""
        return "" if self.error is None else self.error.code or NO_CODE

    @property
    def audio_s(self) -> float:
        return sum(self.durations_s)

    @property
    def ttfa_ms(self) -> float | None:
        """From sending to the first audio."""
        return 1e3 * (self.arrived_s[0] - self.sent_s) if self.arrived_s else None

    @property
    def gaps_ms(self) -> tuple[float, ...]:
        return tuple(1e3 * (after - before) for before, after in pairwise(self.arrived_s))

    @property
    def rtf(self) -> float | None:
        """Time to the last chunk over the time of the audio."""
        return (self.arrived_s[-1] - self.sent_s) / self.audio_s if self.audio_s else None

    @property
    def lag_ms(self) -> float:
        """How late the generator sent it."""
        return 0.0 if self.due_s is None else 1e3 * (self.sent_s - self.due_s)

    @property
    def num_underruns(self) -> int:
        """How often a player that starts with the first chunk would have run dry."""
        playhead = Playhead()
        for at_s, duration_s in zip(self.arrived_s, self.durations_s, strict=True):
            playhead.add(at_s, duration_s)
        return playhead.num_underruns
