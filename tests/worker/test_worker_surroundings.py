"""A worker whose surroundings change: its checkpoint, its parent's directory and limits, a copy of its parent."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.noise_voice import NOISE_FOLDER
from tests.worker.streams import CONFIG, ENDLESS, GENEROUS_S, SHORT, finished, submit, wait_until
from voxcpm_core.worker import WorkerHandle, process, start_worker

RESTART_LIMIT_S = 60.0
NEVER_BLOCKS_S = 1.0
UPLOAD = np.zeros(60 * 16_000, np.float32)

FORKING = """
import os, sys
from tests.worker.streams import CONFIG, ENDLESS, GENEROUS_S, SHORT, finished, submit
from voxcpm_core.worker import start_worker

handle = start_worker(CONFIG, "cpu")
stream_id, running = submit(handle, ENDLESS)
assert running.has_patch.wait(GENEROUS_S)
child = os.fork()
if child == 0:
    try:
        handle.cancel(stream_id)
        handle.close()
        is_refused = finished(handle, SHORT).error_code == "NOT_READY"
        os._exit(0 if is_refused and not handle.is_ready else 1)
    finally:
        os._exit(2)
assert os.waitpid(child, 0)[1] == 0
assert len(finished(handle, SHORT).patches) == 3
assert not running.ended and handle.stats().num_restarts == 0
handle.close()
"""


def kill(handle: WorkerHandle) -> None:
    os.kill(handle.stats().worker_pid, signal.SIGKILL)
    wait_until(lambda: not handle.is_ready)


def test_a_forked_copy_of_the_parent_does_not_touch_the_worker():
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=RESTART_LIMIT_S)


def test_a_relative_folder_is_found_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(NOISE_FOLDER, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    Path("SHA256SUMS").write_bytes(subprocess.check_output("sha256sum *", shell=True, cwd="model"))
    handle = start_worker(dataclasses.replace(CONFIG, model="model", checksums="SHA256SUMS"), "cpu")
    try:
        monkeypatch.chdir("/")
        kill(handle)
        wait_until(lambda: handle.is_ready, RESTART_LIMIT_S)
        assert len(finished(handle, SHORT).patches) == 3
    finally:
        handle.close()


@pytest.mark.soak
def test_a_folder_that_became_another_model_is_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder = tmp_path / "model"
    shutil.copytree(NOISE_FOLDER, folder)
    handle = start_worker(dataclasses.replace(CONFIG, model=str(folder)), "cpu")
    try:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "max_length": config["max_length"] // 2}))
        with caplog.at_level(logging.ERROR):
            kill(handle)
            wait_until(lambda: "now holds another model" in caplog.text, RESTART_LIMIT_S)
        assert finished(handle, SHORT).error_code == "NOT_READY"
        shutil.copy(NOISE_FOLDER / "config.json", folder)
        wait_until(lambda: handle.is_ready, RESTART_LIMIT_S)
    finally:
        handle.close()


@pytest.mark.soak
def test_without_free_descriptors_it_is_started_once_there_are(own_worker: WorkerHandle):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    pid = own_worker.stats().worker_pid
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: own_worker.stats().num_restarts > 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: own_worker.is_ready, RESTART_LIMIT_S)
    assert len(finished(own_worker, SHORT).patches) == 3


def test_a_stopped_worker_blocks_no_caller(worker: WorkerHandle):
    stream_id, running = submit(worker, ENDLESS)
    assert running.has_patch.wait(GENEROUS_S)
    pid = worker.stats().worker_pid
    os.kill(pid, signal.SIGSTOP)
    started_s = time.monotonic()
    encoding = worker.encode(UPLOAD, "left")
    worker.cancel(stream_id)
    _, short = submit(worker, SHORT)
    assert time.monotonic() - started_s < NEVER_BLOCKS_S
    os.kill(pid, signal.SIGCONT)
    assert encoding.result(GENEROUS_S).shape[1] == worker.model.feat_dim
    assert running.has_ended.wait(GENEROUS_S)
    assert running.error_code == "CANCELLED"
    assert short.has_ended.wait(GENEROUS_S)
    assert len(short.patches) == 3


def test_a_worker_that_takes_no_commands_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "SEND_LIMIT_S", 1)
    handle = start_worker(CONFIG, "cpu")
    try:
        _, running = submit(handle, ENDLESS)
        assert running.has_patch.wait(GENEROUS_S)
        os.kill(handle.stats().worker_pid, signal.SIGSTOP)
        encoding = handle.encode(UPLOAD, "left")
        assert running.has_ended.wait(GENEROUS_S)
        assert running.error_code == "INTERNAL"
        assert "ended unexpectedly" in str(encoding.exception(GENEROUS_S))
        wait_until(lambda: handle.is_ready, RESTART_LIMIT_S)
    finally:
        handle.close()
