"""The engine's steps, from its counters before and after each turn of its loop."""

from __future__ import annotations

from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.board import Record
from voxcpm_core.types import EngineStats

COUNTERS = {
    catalog.PREFILLS: "num_prefills",
    catalog.PREFILL_POSITIONS: "num_prefill_positions",
    catalog.SHARED_POSITIONS: "num_shared_positions",
    catalog.ENCODINGS: "num_encodings",
    catalog.VOICE_HITS: "num_voice_hits",
    catalog.VOICE_MISSES: "num_voice_misses",
}  # names of EngineStats


class Steps:
    """A turn launches a step at most, and collects one at most, which may be the one that an earlier turn launched."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._busy_ns = 0  # since a step was last collected

    def turn(self, before: EngineStats, after: EngineStats) -> None:
        """Both are of the same engine."""
        if after.num_steps > before.num_steps:
            self._record(catalog.BATCH_SIZE, after.num_patches - before.num_patches)
        for metric, name in COUNTERS.items():
            growth = getattr(after, name) - getattr(before, name)
            if growth:
                self._record(metric, growth)
        self._busy_ns += after.busy_ns - before.busy_ns
        if after.collected_ns > before.collected_ns:
            self._record(catalog.STEP, self._busy_ns / 1e9)
            self._busy_ns = 0
