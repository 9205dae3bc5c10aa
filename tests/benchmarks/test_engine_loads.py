"""Loads for an engine in this process, on a small one."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import engine_loads
from tests.noise_voice import NOISE
from voxcpm_core.config import EngineConfig
from voxcpm_core.engine.threaded import start_engine


def test_callers_who_ask_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_loads, "NUM_PATCHES", 6)
    engine = start_engine(dataclasses.replace(EngineConfig(model=NOISE), max_running=3, kv_cache_mib=64), "cpu")
    try:
        row, before = engine_loads.closed_loop(engine, 3), engine.stats()
    finally:
        engine.close()
    assert before.num_prefills >= 3 * engine_loads.NUM_ROUNDS
    assert row["closed_audio_s_per_s"] > 0
    assert row["closed_gap_p50_ms"] > 0
    assert row["closed_ttfa_p50_ms"] > 0
