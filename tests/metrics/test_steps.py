"""Step times and batch sizes out of counters, for an engine that collects at once and one that runs ahead."""

from __future__ import annotations

import pytest

from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.catalog import Metric
from voxcpm_core.metrics.steps import Steps
from voxcpm_core.types import EngineStats

IDLE = EngineStats(
    running=0, waiting=0, max_running=4, pages_used=0, pages_total=9, num_steps=7, num_dit_calls=0, num_prefills=3,
    num_patches=20, collected_ns=50, busy_ns=10**9,
)


class Turns:
    def __init__(self) -> None:
        self.recorded: dict[Metric, list[float]] = {}
        self._steps = Steps(self._record)
        self._stats = IDLE

    def _record(self, metric: Metric, value: float = 1.0, label_value: str = "") -> None:
        self.recorded.setdefault(metric, []).append(value)

    def turn(self, busy_ms: float, rows: int = 0, prefills: int = 0, is_collected: bool = False) -> None:
        before = self._stats
        self._stats = before._replace(
            num_steps=before.num_steps + (rows > 0), num_patches=before.num_patches + rows,
            num_prefills=before.num_prefills + prefills, busy_ns=before.busy_ns + round(busy_ms * 1e6),
            collected_ns=before.collected_ns + is_collected,
        )
        self._steps.turn(before, self._stats)


def test_each_turn_launches_and_collects():
    turns = Turns()
    turns.turn(30, rows=2, prefills=2, is_collected=True)
    turns.turn(20, rows=2, is_collected=True)
    turns.turn(0)
    assert turns.recorded == {
        catalog.BATCH_SIZE: [2, 2], catalog.PREFILLS: [2], catalog.STEP: [pytest.approx(0.03), pytest.approx(0.02)],
    }


def test_a_step_is_collected_by_a_later_turn():
    turns = Turns()
    turns.turn(5, rows=1, prefills=1)
    turns.turn(20, rows=3, is_collected=True)
    turns.turn(10, is_collected=True)
    assert turns.recorded[catalog.STEP] == [pytest.approx(0.025), pytest.approx(0.01)]
    assert turns.recorded[catalog.BATCH_SIZE] == [1, 3]


def test_a_turn_without_a_step_is_nothing():
    turns = Turns()
    turns.turn(0)
    assert turns.recorded == {}
