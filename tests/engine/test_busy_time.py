"""What counts as the time of steps."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from tests.engine.harness import SMALL, Harness
from voxcpm_core.types import SamplingParams, SpeechRequest

PAUSE_NS = 1000


@pytest.mark.parametrize(("run_ahead", "pauses_per_step"), [("on", 1), ("off", 0)])
def test_time_between_turns_counts_while_a_step_is_under_way(
    run_ahead: str, pauses_per_step: int, stopping_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
):
    now_ns = 10**9
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    harness = Harness(stopping_checkpoint, dataclasses.replace(SMALL, run_ahead=run_ahead))
    params = SamplingParams(max_length=4, ignore_stop=True, seed=1)
    for _ in range(2):
        harness.add(SpeechRequest("Hello", params=params))
        while harness.core.has_work:
            harness.step()
            now_ns += PAUSE_NS
        now_ns += 10**9  # idle
    stats = harness.core.stats()
    assert stats.num_steps == 8
    assert stats.busy_ns == pauses_per_step * 8 * PAUSE_NS
