"""`benchmarks.voices` on a tiny checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import voices
from voxcpm_core.checkpoint.random_init import make_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.engine.threaded import start_engine


def test_first_and_second_uses_and_joins_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voices, "MODES", {"both": voices.MODES["both"]})
    make_checkpoint(tmp_path / "2", size="tiny", generation="2", dtype="float32")
    engine = start_engine(EngineConfig(model=str(tmp_path / "2"), max_running=3, max_model_len=300), "cpu")
    try:
        results = voices.measure(engine, num_running=1, num_repeats=1, seconds=0.1, long_seconds=0.2)
    finally:
        engine.close()
    assert list(results["idle"]) == ["no voice", "both", "both, latents"]
    assert all(row["cosine_min"] > 0.9999 for name, row in results["idle"].items() if name != "no voice")
    assert list(results["joins"]) == ["no voice", "known voice", "new voice, 0.1 s", "new voice, 0.2 s"]
    assert results["stats"]["num_shared_positions"] > 0
