"""`benchmarks.reloads` on this machine, whose GPU memory is told where there is any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import reloads

ROUNDS = 2


@pytest.mark.server
def test_what_each_round_leaves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.json"
    monkeypatch.setattr("sys.argv", ["reloads", "--rounds", str(ROUNDS), "--json", str(file)])
    assert reloads.main() == 0
    rounds = json.loads(file.read_text())["rounds"]
    assert [each["processes"] for each in rounds] == [1] * ROUNDS


def test_what_is_left_behind_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"left_gpu_mib": 500.0, "processes": 1}
    for last, status in (
        (first, 0), ({**first, "left_gpu_mib": 600.0}, 1), ({**first, "processes": 2}, 1),
    ):  # fmt: skip
        monkeypatch.setattr(reloads, "measure", lambda *_, last=last: [first, last])
        monkeypatch.setattr("sys.argv", ["reloads"])
        assert reloads.main() == status
