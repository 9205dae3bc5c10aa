"""The processes of a load: stopped before they begin, and one that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from voxcpm_client.load.asking import Script
from voxcpm_client.load.crew import Crew, default_processes
from voxcpm_client.load.patterns import Arrivals
from voxcpm_client.load.plan import Limits, make_shares

SCRIPT = Script("127.0.0.1:9", "voxcpm", 10.0, ("one",), {}, seed=0)


def shares_of_an_hour(num_processes: int) -> list:
    begin_s = time.perf_counter() + 3600
    return make_shares(SCRIPT, Arrivals(1.0, 1.0), Limits(num_requests=4), num_processes, begin_s, seed=0)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_crew_that_was_stopped_sends_nothing(num_processes: int) -> None:
    with Crew(num_processes) as crew:
        crew.stop()
        crew.stop()
        assert crew.is_stopped
        if num_processes == 1:
            (result,) = crew.run(shares_of_an_hour(1))
            assert (result.outcomes, result.num_unfinished) == ((), 0)


def test_a_process_that_dies_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    with Crew(2) as crew:
        os.kill(started[1].pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="load generator ended with exit status -9"):
            crew.run(shares_of_an_hour(2))
    assert [process.returncode for process in started] == [0, -9]


def test_processes_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for num_clients, num_cores, expected in ((1, 16, 1), (17, 16, 2), (64, 16, 4), (64, 2, 1), (500, 16, 4)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=num_cores: cores)
        assert default_processes(num_clients) == expected
