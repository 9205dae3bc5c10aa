"""Sections of checks in processes of their own: whatever becomes of one is told, and hurts no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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
    open("pid", "w").write(str(os.getpid()))
    time.sleep(60)
print("ends", name)
"""


@pytest.mark.parametrize(
    ("names", "failed"), [(["fine", "raises", "dies", "also"], ["raises", "dies"]), (["hangs", "fine"], ["hangs"])]
)
def test_what_becomes_of_each_is_told(names, failed, tmp_path, monkeypatch, capsys):
    (tmp_path / "some_checks.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert run_apart("some_checks", names, tmp_path, limit_s=10.0) == failed
    told = capsys.readouterr().out
    for name in names:
        assert told.count(f"begins {name}\n") == 1
        assert told.count(f"ends {name}\n") == (name not in failed)
        assert told.count(f"FAIL {name}") == (name in failed)


def test_who_terminates_it_ends_the_sections(tmp_path):
    (tmp_path / "some_checks.py").write_text(MODULE)
    project = Path(__file__).parents[2]
    script = (
        "import pathlib; from benchmarks.sections import run_apart; "
        "run_apart('some_checks', ['hangs'], pathlib.Path.cwd(), limit_s=60)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{project}:{tmp_path}"}
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, env=environment) as process:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
