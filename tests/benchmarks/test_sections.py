"""Sections of checks in processes of their own: whatever becomes of one is told, and hurts no other."""

from __future__ import annotations

import pytest

from benchmarks.sections import run_apart

MODULE = """
import os, sys, time
name = sys.argv[2]
print("begins", name)
if name == "raises":
    raise ValueError("no")
if name == "dies":
    os.kill(os.getpid(), 9)
if name == "hangs":
    time.sleep(60)
print("ends", name)
"""


@pytest.mark.parametrize(
    ("names", "failed"), [(["fine", "raises", "dies", "also"], ["raises", "dies"]), (["hangs", "fine"], ["hangs"])]
)
def test_what_becomes_of_each_is_told(names, failed, tmp_path, monkeypatch, capsys):
    (tmp_path / "some_checks.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_apart("some_checks", names, tmp_path, limit_s=10.0) == failed
    told = capsys.readouterr().out
    for name in names:
        assert told.count(f"begins {name}\n") == 1
        assert told.count(f"ends {name}\n") == (name not in failed)
        assert told.count(f"FAIL {name}") == (name in failed)
