"""The soak's own instruments: growth is found, noise is not, and processes are seen as they are."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.soak.flatness import MEMORY_KIB, trends
from tests.soak.processes import SHM, holdings, shared_memory_kib
from tests.soak.watch import Watch

BASE = {"stub rss_kib": 100_000, "stub threads": 20, "stub descriptors": 50, "/dev/shm kib": 2048, "stub processes": 1}


def run_with(**growth: float) -> set[str]:
    """Names that are found to grow when each grows by so much over the whole run, with noise."""
    draw = random.Random(1)
    samples = []
    for step in range(200):
        done = step / 200
        sample = {
            name: int(value + growth.get(name, 0) * done + draw.choice([-1, 0, 1]) * (value > 1))
            for name, value in BASE.items()
        }
        samples.append((done, sample))
    return {trend.name for trend in trends(samples) if not trend.is_flat}


def test_noise_is_flat():
    assert run_with() == set()


@pytest.mark.parametrize(
    ("name", "growth"),
    [("stub rss_kib", 2 * MEMORY_KIB), ("stub threads", 8), ("stub descriptors", 8), ("/dev/shm kib", 8192)],
)
def test_growth_is_found(name: str, growth: float):
    assert run_with(**{name: growth}) == {name}


def test_a_process_more_is_found():
    samples = [(step / 100, {"stub processes": 1 + (step > 50)}) for step in range(100)]
    assert [trend.is_flat for trend in trends(samples)] == [False]


def test_too_few_samples():
    with pytest.raises(ValueError, match="too few samples"):
        trends([(0.15, {})])


def test_children_threads_and_descriptors_are_seen():
    program = (
        "import sys, threading\n"
        "threads = [threading.Thread(target=threading.Event().wait, daemon=True) for _ in range(3)]\n"
        "[thread.start() for thread in threads]\n"
        "files = [open('/dev/null') for _ in range(7)]\n"
        "block = bytearray(b'x') * (64 << 20)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, "voxcpm_core.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        (seen,) = [holding for holding in holdings(os.getpid()) if holding.pid == child.pid]
        child.communicate()
    assert seen.role == "worker"
    assert seen.threads == 4
    assert seen.descriptors >= 10
    assert seen.rss_kib >= seen.pss_kib >= 64 << 10


def test_shared_memory_is_counted_by_its_prefix(tmp_path: Path):
    file = SHM / f"voxcpm_soak_test_{os.getpid()}_region"
    try:
        file.write_bytes(b"x" * (1 << 20))
        assert shared_memory_kib(f"voxcpm_soak_test_{os.getpid()}_") == 1024
    finally:
        file.unlink(missing_ok=True)
    assert shared_memory_kib(f"voxcpm_soak_test_{os.getpid()}_") == 0


def test_the_watch_samples_its_root_until_it_is_left():
    seen = threading.Event()

    def progress() -> float:
        seen.set()
        return 0.5

    with Watch(os.getpid(), "voxcpm_no_such_prefix_", progress, period_s=0.01) as watch:
        assert seen.wait(10)
    done, sample = watch.samples[0]
    assert done == 0.5
    assert sample["other threads"] >= 2
    assert os.getpid() in watch.pids["other"]
