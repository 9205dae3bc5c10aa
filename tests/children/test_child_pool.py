"""Child processes that crash, hang and are killed: the parent always gets an answer in time, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.stopped import stopped
from voxcpm_core.children import ChildDied, ChildPool, ChildTooSlow
from voxcpm_core.errors import ErrorCode, RequestError

GENEROUS_S = 10.0
PROGRAM = """
import ctypes, os, sys, time
from voxcpm_core.children.serve import serve
from voxcpm_core.errors import ErrorCode, RequestError

def answer(message):
    verb, _, argument = message.partition(b" ")
    print("chatter", flush=True)
    print("chatter", file=sys.stderr, flush=True)
    if verb == b"sleep":
        time.sleep(float(argument))
    elif verb == b"crash":
        ctypes.string_at(0)
    elif verb == b"raise":
        raise ValueError("SECRET")
    elif verb == b"refuse":
        raise RequestError(ErrorCode.INVALID_AUDIO, "no such audio: é")
    elif verb == b"hog":
        return b"x" * int(argument)
    elif verb == b"time":
        return str(time.monotonic_ns()).encode()
    elif verb == b"pid":
        return str(os.getpid()).encode()
    return message

serve(answer, 1 << 30)
"""


def make_pool(num_children: int = 2, limit_s: float = GENEROUS_S) -> ChildPool:
    return ChildPool(("-c", PROGRAM), num_children, limit_s)


@pytest.fixture
def pool() -> Iterator[ChildPool]:
    pool = make_pool()
    yield pool
    pool.close()
    assert pool.pids == ()


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def ends_within(pid: int, seconds: float) -> bool:
    """Whether the process is gone, or a zombie, in time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("message", [b"", b"hello", bytes(range(256)) * 100_000])
def test_any_bytes_go_there_and_back(pool: ChildPool, message: bytes):
    assert bytes(pool.call(message)) == message


def test_a_child_stays_for_the_next_message(pool: ChildPool):
    assert bytes(pool.call(b"pid")) == bytes(pool.call(b"pid"))
    assert len(pool.pids) == 1


def test_a_refusal_comes_back_as_it_is_and_the_child_lives_on(pool: ChildPool):
    pid = bytes(pool.call(b"pid"))
    with pytest.raises(RequestError, match="no such audio: é") as caught:
        pool.call(b"refuse")
    assert caught.value.code is ErrorCode.INVALID_AUDIO
    assert bytes(pool.call(b"pid")) == pid


@pytest.mark.parametrize("message", [b"crash", b"raise", b"hog 2000000000"])
def test_a_crash_ends_its_message_alone(pool: ChildPool, message: bytes, capfd: pytest.CaptureFixture[str]):
    with pytest.raises(ChildDied):
        pool.call(message)
    assert bytes(pool.call(b"still there")) == b"still there"
    assert capfd.readouterr() == ("", "")


def test_a_child_that_was_killed_while_idle_is_replaced_unseen(pool: ChildPool):
    pid = int(bytes(pool.call(b"pid")))
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # to its very end, and left for the pool to reap
    assert int(bytes(pool.call(b"pid"))) != pid


def test_a_message_that_takes_too_long_is_given_up():
    pool = make_pool(limit_s=0.3)
    start_s = time.monotonic()
    with pytest.raises(ChildTooSlow):
        pool.call(b"sleep 100")
    assert time.monotonic() - start_s < GENEROUS_S
    assert pool.pids == ()
    assert bytes(pool.call(b"next")) == b"next"
    pool.close()


def test_a_stopped_child_is_given_up():
    pool = make_pool(limit_s=0.3)
    pid = int(bytes(pool.call(b"pid")))
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(ChildTooSlow):
        pool.call(b"x" * 10_000_000)
    assert ends_within(pid, GENEROUS_S)
    pool.close()


def test_a_departing_caller_kills_its_child_and_one_in_line_leaves_at_once():
    pool = make_pool(num_children=1)
    gone = RequestError(ErrorCode.CANCELLED, "gone")
    leaves = threading.Event()

    def departure() -> RequestError | None:
        return gone if leaves.is_set() else None

    worker = threading.Thread(target=lambda: pytest.raises(RequestError, pool.call, b"sleep 100", departure))
    worker.start()
    while not pool.pids:
        time.sleep(0.01)
    (pid,) = pool.pids
    start_s = time.monotonic()
    with pytest.raises(RequestError, match="gone"):
        pool.call(b"in line", lambda: gone)
    assert worker.is_alive()
    leaves.set()
    worker.join(GENEROUS_S)
    assert time.monotonic() - start_s < GENEROUS_S
    assert ends_within(pid, GENEROUS_S)
    assert bytes(pool.call(b"next")) == b"next"
    pool.close()


def test_callers_are_served_in_order_by_no_more_than_the_children_there_are():
    pool = make_pool(num_children=1)
    pool.call(b"warm")
    with ThreadPoolExecutor(8) as threads:
        with stopped(pool.pids):
            calls = []
            for index in range(8):
                calls.append(threads.submit(pool.call, b"time"))
                wait_until(lambda due=index: bool(pool._busy) and len(pool._line) == due)
        served_ns = [int(bytes(call.result(GENEROUS_S))) for call in calls]
        assert len(pool.pids) == 1
    assert served_ns == sorted(served_ns)
    pool.close()


def test_close_answers_who_is_served_and_who_waits():
    pool = make_pool(num_children=1)
    pool.call(b"warm")
    (pid,) = pool.pids
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(pool.call, b"sleep 100") for _ in range(4)]
        wait_until(lambda: len(pool._line) == 3)
        start_s = time.monotonic()
        pool.close()
        errors = [call.exception(GENEROUS_S) for call in calls]
    assert time.monotonic() - start_s < GENEROUS_S
    assert {error.code for error in errors} == {ErrorCode.NOT_READY}
    assert not Path(f"/proc/{pid}").exists(), "the child was not reaped"
    with pytest.raises(RequestError, match="retry after"):
        pool.call(b"late")


def test_a_child_that_cannot_start_is_a_fault_and_not_the_messages():
    pool = ChildPool(("-c", "import no_such_module"), 1, GENEROUS_S)
    with pytest.raises(RuntimeError):
        pool.call(b"x")
    pool.close()


@pytest.mark.parametrize("message", [b"pid", b"sleep 100"])
def test_a_child_ends_with_its_parent_also_at_work(message: bytes):
    code = f"""
import sys, threading, time
from tests.children.test_child_pool import make_pool
pool = make_pool()
pool.call(b"warm")
threading.Thread(target=pool.call, args=({message!r},), daemon=True).start()
time.sleep(0.2)
print(*pool.pids, flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        (pid,) = map(int, parent.stdout.readline().split())
        parent.kill()
    assert ends_within(pid, 5 * 1.0)


def test_a_child_ends_with_its_parent_also_while_a_fork_of_that_holds_the_connection():
    code = """
import os, time
from tests.children.test_child_pool import make_pool
pool = make_pool()
pool.call(b"warm")
fork = os.fork()
if fork:
    print(*pool.pids, fork, flush=True)
time.sleep(100)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, fork = map(int, parent.stdout.readline().split())
        parent.kill()
    try:
        assert ends_within(pid, 5 * 1.0)
    finally:
        os.kill(fork, signal.SIGKILL)


def test_descriptors_and_processes_do_not_pile_up():
    pool = make_pool(num_children=1)
    pool.call(b"warm")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(ChildDied):
            pool.call(b"raise")
    pool.call(b"warm")
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(pool.pids) == 1
    pool.close()
