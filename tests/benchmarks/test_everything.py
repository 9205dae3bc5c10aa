"""`benchmarks.everything`: jobs that end well, badly and never, and a run that goes on where one stopped."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.everything import JOBS, Job, run_all
from tests.server.lifecycle import is_gone

LIMIT_S = 2.0


def test_each_job_costs_itself_alone_and_what_is_done_stays_done(tmp_path: Path) -> None:
    child = "import subprocess, sys, pathlib; pathlib.Path(sys.argv[1]).write_text(str(" \
        "subprocess.Popen(['sleep', '600']).pid)); import time; time.sleep(600)"  # fmt: skip
    jobs = (
        Job("good", ("-c", "import sys; print('said'); open(sys.argv[1], 'w').write('{}')", "{out}"), 60),
        Job("bad", ("-c", "raise SystemExit(3)"), 60),
        Job("endless", ("-c", child, "{folder}/pid"), LIMIT_S),
    )
    told = run_all(jobs, tmp_path)
    assert {name: each.rsplit(",", 1)[0] for name, each in told.items()} == {
        "good": "ok", "bad": "exit status 3", "endless": "no end after 2 s"
    }  # fmt: skip
    assert (tmp_path / "good.json").read_text() == "{}"
    assert (tmp_path / "good.log").read_text() == "said\n"
    end_s = time.monotonic() + 10
    while not is_gone(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < end_s, "what it had started still runs"
        time.sleep(0.02)
    assert run_all(jobs[:2], tmp_path)["good"] == "done before"
    assert run_all(jobs[:2], tmp_path)["bad"].startswith("exit status 3")


def test_every_job_is_there() -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    for job in JOBS:
        if job.arguments[0] == "-m":
            assert (folder / f"{job.arguments[1].removeprefix('benchmarks.')}.py").exists()
    assert len({job.name for job in JOBS}) == len(JOBS)
