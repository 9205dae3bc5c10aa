"""Several workers behind one pool: sharing, failing, starting."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.speaking import CANCEL_LIMIT_S, ENDLESS, SMALL, assert_same, is_idle, say, wait_until
from tests.noise_voice import NOISE
from voxcpm_core import VoxCPM
from voxcpm_core.api import SyncPool
from voxcpm_core.errors import ConfigError, RequestError

FAULT_LIMIT_S = 5 * 2.0
RESTART_LIMIT_S = 60.0


@pytest.fixture(scope="module")
def harmed_pool() -> Iterator[SyncPool]:
    """For tests that harm its workers."""
    with VoxCPM.from_pretrained(NOISE, devices=["cpu", "cpu"], **SMALL) as pool:
        assert isinstance(pool, SyncPool)
        yield pool


def running(pool: SyncPool) -> list[int]:
    return [stats.running for stats in pool.stats()]


def worker_processes() -> set[int]:
    """Of this process's workers."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if parent == os.getpid() and b"voxcpm_core.worker" in command:
            found.add(int(folder.name))
    return found


def test_the_least_loaded_worker_is_chosen_and_ties_alternate(two_workers):
    first, second = two_workers.stats()
    assert 0 not in (first.worker_pid, second.worker_pid)
    assert first.worker_pid != second.worker_pid
    streams = [two_workers.generate("Hello", **ENDLESS) for _ in range(6)]
    for stream in streams:
        next(stream)
    assert running(two_workers) == [3, 3]
    for stream in streams[::2]:  # all those of one worker
        stream.close()
    wait_until(lambda: sorted(running(two_workers)) == [0, 3], CANCEL_LIMIT_S)
    replacements = [two_workers.generate("Hello", **ENDLESS) for _ in range(3)]
    for stream in replacements:
        next(stream)
    assert running(two_workers) == [3, 3]
    for stream in [*streams, *replacements]:
        stream.close()
    wait_until(lambda: is_idle(two_workers), CANCEL_LIMIT_S)
    before = [stats.num_prefills for stats in two_workers.stats()]
    for _ in range(4):
        say(two_workers, "Hello", max_generate_length=1)
    after = [stats.num_prefills for stats in two_workers.stats()]
    assert [late - early for early, late in zip(before, after, strict=True)] == [2, 2]


def test_an_utterance_that_is_made_but_not_read_does_not_count(two_workers):
    unread = two_workers.generate("Hello", max_generate_length=3, **ENDLESS)
    next(unread)
    wait_until(lambda: is_idle(two_workers))
    streams = [two_workers.generate("Hello", **ENDLESS) for _ in range(2)]
    for stream in streams:
        next(stream)
    assert running(two_workers) == [1, 1]
    for stream in streams:
        stream.close()
    assert len(list(unread)) == 2


def test_both_workers_say_the_same(two_workers):
    assert_same(*(say(two_workers, "Hello", seed=5, max_generate_length=4) for _ in range(2)))


def test_one_worker_that_cannot_start_stops_the_others_and_the_cpu_is_offered(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = worker_processes()
    with pytest.raises(ConfigError, match=r"'cuda:99' \(.* is not there.*\); devices=\[\"cpu\"\] runs on the CPU"):
        VoxCPM.from_pretrained(NOISE, devices=["cpu", 99], **SMALL)
    wait_until(lambda: worker_processes() <= before, RESTART_LIMIT_S)


def test_a_killed_worker_takes_only_its_own_streams_along(harmed_pool):
    lost, kept = harmed_pool.generate("Hello", **ENDLESS), harmed_pool.generate("Hello", **ENDLESS)
    next(lost)
    next(kept)
    os.kill(harmed_pool.stats()[0].worker_pid, signal.SIGKILL)
    killed_s = time.monotonic()
    with pytest.raises(RequestError) as error:
        list(lost)
    assert error.value.code.value == "INTERNAL"
    assert time.monotonic() - killed_s < FAULT_LIMIT_S
    meanwhile = [harmed_pool.generate("Hello", **ENDLESS) for _ in range(2)]
    for stream in (kept, *meanwhile):
        next(stream)
    assert running(harmed_pool) == [0, 3]
    for stream in (kept, *meanwhile):
        stream.close()
    wait_until(lambda: harmed_pool.stats()[0].worker_pid != 0, RESTART_LIMIT_S)
    wait_until(lambda: is_idle(harmed_pool))
    again = [harmed_pool.generate("Hello", **ENDLESS) for _ in range(2)]
    for stream in again:
        next(stream)
    assert running(harmed_pool) == [1, 1]
    for stream in again:
        stream.close()


def test_when_no_worker_is_left_requests_are_told_to_come_again(harmed_pool):
    wait_until(lambda: all(stats.worker_pid != 0 for stats in harmed_pool.stats()), RESTART_LIMIT_S)
    for stats in harmed_pool.stats():
        os.kill(stats.worker_pid, signal.SIGKILL)
    wait_until(lambda: [stats.worker_pid for stats in harmed_pool.stats()] == [0, 0])
    for _ in range(2):
        with pytest.raises(RequestError, match="retry after") as error:
            say(harmed_pool, "Hello")
        assert error.value.code.value == "NOT_READY"
