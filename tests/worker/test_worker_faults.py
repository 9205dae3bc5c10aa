"""A worker that dies, is stopped, or loses its parent."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.noise_voice import NOISE_FOLDER
from tests.worker.streams import CONFIG, ENDLESS, GENEROUS_S, SHORT, finished, submit, wait_until
from voxcpm_core.errors import RequestError
from voxcpm_core.worker import start_worker
from voxcpm_core.worker.restarts import MAX_CRASHES

FAULT_LIMIT_S = 2.0
ORPHAN_LIMIT_S = 1.0
SHARED = 5  # so many times a limit may take on a machine that others use; the soak has it to itself
RESTART_LIMIT_S = 60.0

ORPHAN = """
import os, sys
from tests.worker.streams import CONFIG
from voxcpm_core.worker import start_worker
handle = start_worker(CONFIG, "cpu")
print(handle.stats().worker_pid, flush=True)
sys.stdin.read()
"""


def kill(pid: int, ending: signal.Signals = signal.SIGKILL) -> float:
    os.kill(pid, ending)
    return time.monotonic()


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("limit_s", [SHARED * FAULT_LIMIT_S, pytest.param(FAULT_LIMIT_S, marks=pytest.mark.soak)])
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_that_dies_ends_its_streams_and_is_started_again(own_worker, ending, limit_s):
    expected = finished(own_worker, SHORT).latents
    streams = [submit(own_worker, ENDLESS)[1] for _ in range(6)]  # two of them wait
    assert streams[0].has_patch.wait(GENEROUS_S)
    pid = own_worker.stats().worker_pid
    killed_s = kill(pid, ending)
    for stream in streams:
        assert stream.has_ended.wait(limit_s)
        assert stream.error_code == "INTERNAL"
        assert stream.ended_s - killed_s < limit_s
    assert not own_worker.is_ready
    assert (own_worker.stats().running, own_worker.stats().pages_used, own_worker.stats().worker_pid) == (0, 0, 0)
    refused = finished(own_worker, SHORT)
    assert refused.error_code == "NOT_READY"
    assert str(refused.events[-1].error).rsplit(",", 1)[1].startswith(" retry after ")
    with pytest.raises(RequestError, match="started again"):
        own_worker.encode(np.zeros(100, np.float32), "left").result(GENEROUS_S)
    wait_until(lambda: own_worker.is_ready, RESTART_LIMIT_S)
    assert finished(own_worker, SHORT).latents == pytest.approx(expected, abs=1e-5)
    assert own_worker.stats().num_restarts == 1
    assert own_worker.stats().worker_pid != pid


@pytest.mark.soak
def test_after_five_crashes_in_a_row_it_stays_down_and_says_so(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(NOISE_FOLDER, folder)
    handle = start_worker(dataclasses.replace(CONFIG, model=str(folder)), "cpu")
    try:
        finished(handle, SHORT)
        for file in folder.glob("*.safetensors"):
            file.unlink()
        kill(handle.stats().worker_pid)
        wait_until(lambda: f"crashed {MAX_CRASHES} times" in str(finished(handle, SHORT).events[-1].error), 150.0)
        refused = finished(handle, SHORT)
        assert refused.error_code == "NOT_READY"
        assert "until the model is loaded again, retry after" in str(refused.events[-1].error)
        assert not handle.is_ready
        assert handle.stats().num_restarts == MAX_CRASHES - 1
    finally:
        started_s = time.monotonic()
        handle.close()
    assert time.monotonic() - started_s < GENEROUS_S


def test_closing_ends_what_runs_and_the_process(own_worker):
    pid = own_worker.stats().worker_pid
    _, running = submit(own_worker, ENDLESS)
    assert running.has_patch.wait(GENEROUS_S)
    own_worker.close()
    own_worker.close()
    assert running.error_code == "NOT_READY"
    assert finished(own_worker, SHORT).error_code == "NOT_READY"
    assert not is_running(pid)


def test_closing_while_it_starts_again_does_not_wait_for_the_start(own_worker):
    kill(own_worker.stats().worker_pid)
    wait_until(lambda: not own_worker.is_ready)
    started_s = time.monotonic()
    own_worker.close()
    assert time.monotonic() - started_s < SHARED * FAULT_LIMIT_S


@pytest.mark.soak
def test_a_parent_that_was_stopped_for_a_while_loses_nothing(own_worker):
    """While the parent takes nothing the worker waits: the ring is bounded and nothing is overwritten."""
    program = "import os, signal, sys, time; os.kill({0}, signal.SIGSTOP); time.sleep(1); os.kill({0}, signal.SIGCONT)"
    request = dataclasses.replace(ENDLESS, params=dataclasses.replace(ENDLESS.params, max_length=60))
    expected = finished(own_worker, request)
    _, received = submit(own_worker, request)
    subprocess.run([sys.executable, "-c", program.format(os.getpid())], check=True)
    assert received.has_ended.wait(GENEROUS_S)
    received.check_order()
    assert received.audio == pytest.approx(expected.audio, abs=1e-5)


@pytest.mark.parametrize("limit_s", [SHARED * ORPHAN_LIMIT_S, pytest.param(ORPHAN_LIMIT_S, marks=pytest.mark.soak)])
def test_a_worker_ends_with_its_parent(limit_s):
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_running(pid)
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_running(pid), limit_s)
    parent.stdout.close()
    assert parent.stdin is not None
    parent.stdin.close()


def test_signals_to_the_whole_group_do_not_reach_the_engine(worker):
    pid = worker.stats().worker_pid
    assert os.getpgid(pid) != os.getpgid(0)
    for ending in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, ending)
    assert len(finished(worker, SHORT).patches) == 3
