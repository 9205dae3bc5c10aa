"""What a worker process tells of its turns and its device."""

from __future__ import annotations

from tests.worker.streams import CONFIG, SHORT, finished, wait_until
from voxcpm_core.types import EngineStats
from voxcpm_core.worker import start_worker


def test_every_step_is_seen_with_its_time():
    engine = start_worker(CONFIG, "cpu")
    try:
        turns: list[tuple[EngineStats, EngineStats]] = []
        engine.watch_turns(lambda before, after: turns.append((before, after)))
        first = engine.stats()
        assert engine.gpu == "cpu"
        finished(engine, SHORT)
        wait_until(lambda: engine.stats().running == 0)
        assert turns[0][0].num_steps == first.num_steps
        assert all(earlier[1] == later[0] for earlier, later in zip(turns, turns[1:], strict=False))
        assert sum(after.num_steps - before.num_steps for before, after in turns) == 3
        steps = [(before, after) for before, after in turns if after.collected_ns > before.collected_ns]
        assert len(steps) == 3
        assert all(after.busy_ns > before.busy_ns for before, after in steps)
    finally:
        engine.close()
