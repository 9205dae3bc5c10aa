"""`benchmarks.compare_nano` without the peer, which runs on CUDA alone; what it needs of a checkpoint; the table."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from benchmarks import compare_nano
from benchmarks.compare_checkpoint import ensure_checkpoint
from benchmarks.compare_engine import Heard, Run, row, settings_of
from tests.engine.harness import Harness
from voxcpm_core.types import FinishReason, SamplingParams, SpeechRequest


@pytest.mark.parametrize("generation", ["0.5", "2"])
def test_the_checkpoint_has_the_files_that_both_read_and_never_stops(tmp_path: Path, generation: str) -> None:
    folder = ensure_checkpoint(tmp_path / "model", "tiny", generation)
    assert [file.name for file in folder.glob("*.safetensors")] == ["model.safetensors"]
    assert sorted(file.name for file in folder.iterdir() if file.suffix in (".pth", ".bin")) == ["audiovae.pth"]
    params = SamplingParams(max_length=12, length_cap=False, seed=1)
    received = Harness(folder).run(SpeechRequest("hello the world", params=params))
    assert (len(received.patches), received.finish_reason) == (12, FinishReason.LENGTH)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    ensure_checkpoint(folder, "tiny", generation)
    assert (folder / "model.safetensors").stat().st_mtime_ns == written, "it is kept"


def test_this_engine_alone_is_marked_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    load = ["--models", "tiny", "--device", "cpu", "--streams", "1", "2", "--patches", "3"]
    compare_nano.main([*load, "--set", "run_ahead=off", "--json", str(file)])
    report = json.loads(file.read_text(encoding="utf-8"))
    measured = report["models"]["tiny"]
    assert measured["nano"] == "it runs on CUDA alone"
    for each, streams in zip(measured["ours"]["rows"], (1, 2), strict=True):
        assert each["streams"] == streams
        assert 0 < each["ttfa_p50_ms"] <= 3 * each["step_ms"]
        assert len(each["step_ms_of_runs"]) == 3
    assert "ONLY THIS ENGINE, nothing to compare with: it runs on CUDA alone" in capfd.readouterr().out


def result(streams: int, step_ms: float, audio_s_per_s: float) -> dict:
    return {"streams": streams, "step_ms": step_ms, "step_ms_of_runs": [step_ms - 1, step_ms, step_ms + 2],
            "ttfa_p50_ms": 12.0, "rtf": 0.1, "audio_s_per_s": audio_s_per_s}  # fmt: skip


def test_the_table_has_the_ratio_of_audio_per_second() -> None:
    ours = {"ready_s": 9.0, "rows": [result(1, 5.0, 30.0), result(64, 15.0, 600.0)]}
    nano = {"ready_s": 60.0, "rows": [result(1, 15.0, 10.0), result(64, 60.0, 150.0)]}
    lines = compare_nano.table("2", {"ours": ours, "nano": nano}).splitlines()
    assert [line.split()[-1] for line in lines if " ours " in line and "ready" not in line] == ["3.00", "4.00"]
    assert sum(" nano " in line for line in lines if "ready" not in line) == 2
    assert "14.00-17.00" in lines[-2]


def test_what_is_missing_of_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[str] = set()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in there else None)
    assert compare_nano.why_no_peer() == "nano-vllm-voxcpm is not installed"
    there.add("nanovllm_voxcpm")
    assert compare_nano.why_no_peer() == "flash-attn is not installed"
    there.add("flash_attn")
    assert compare_nano.why_no_peer() is None


def test_a_peer_that_fails_costs_no_figures_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = {"ready_s": 9.0, "rows": [result(1, 5.0, 30.0)]}
    run_engine = compare_nano.run_engine
    fake = {"ours": lambda *_: ours, "nano": run_engine}
    monkeypatch.setattr(compare_nano, "run_engine", lambda name, *rest: fake[name](name, *rest))
    measured = compare_nano.compare("2", tmp_path, compare_nano.parse([]), peer_reason=None)
    assert measured == {"ours": ours, "nano": "nano-vllm-voxcpm failed: exit status 1; its words stand above"}
    printed = capfd.readouterr()
    assert "No module named 'nanovllm_voxcpm'" in printed.err
    assert "ONLY THIS ENGINE" in printed.out


def test_figures_are_those_of_the_run_of_median_length() -> None:
    runs = [Run(wall_s, (Heard(wall_s / 10, wall_s, 48000, 10),) * 2) for wall_s in (3.0, 1.0, 2.0)]
    figures = row(runs, num_patches=10, sample_rate=48000)
    assert figures["streams"] == 2
    assert figures["step_ms"] == pytest.approx(200)
    assert figures["step_ms_of_runs"] == pytest.approx([300, 100, 200])
    assert (figures["ttfa_p50_ms"], figures["rtf"], figures["audio_s_per_s"]) == pytest.approx((200, 2.0, 1.0))
    with pytest.raises(ValueError, match="10 patches instead of 11"):
        row(runs, num_patches=11, sample_rate=48000)


def test_settings_are_numbers_where_they_look_like_it() -> None:
    assert settings_of(["cuda_graphs=on", "kv_cache_mib=64"]) == {"cuda_graphs": "on", "kv_cache_mib": 64}
