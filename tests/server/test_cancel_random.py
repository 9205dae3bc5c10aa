"""Many callers who leave at random moments, in every way, beside others who stay."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.instance import Instance
from tests.server.streams import LONG, GrpcStream, HttpStream, same_sound
from tests.server.wire import call
from tests.server_process import make_server, require_installation
from voxcpm_client.server import TritonServer, find_repository

pytestmark = pytest.mark.server
NUM_CALLERS = 6
MAX_SERVERS = 3
STAYING = {**LONG, "max_length": 6, "seed": 5}


def chain(folder: Path) -> Path:
    """A repository of `voxcpm` and what the ensemble needs besides."""
    folder.mkdir()
    for name in ("voxcpm", "audiovae", "mp3_encoder", "voxcpm_mp3"):
        (folder / name).symlink_to(find_repository() / name, target_is_directory=True)
    return folder


@contextmanager
def started(log_file: Path) -> Iterator[Instance]:
    """Room for three, two who wait and one at the gate: of six callers some are in every place."""
    require_installation(dict(os.environ))
    with (
        make_server(
            log_file, repository=chain(log_file.with_suffix(".models")),
            VOXCPM_MAX_RUNNING="3", VOXCPM_MAX_WAITING="2",
        ) as server,
        Instance(server) as instance,
    ):
        yield instance


def died_of_itself(log_file: Path) -> bool:
    """Whether tritonserver crashed in its own code: 2.51 was seen to, at a cancel over gRPC."""
    _, found, stack = log_file.read_text().partition("Signal (11) received")
    return bool(found) and "libtriton_python" not in stack


def leave_after_a_while(instance: Instance, request_id: str, rng: random.Random) -> None:
    stream = GrpcStream(instance.server, LONG, request_id)
    time.sleep(rng.uniform(0, 0.5))
    stream.leave()


def leave_after_some_chunks(instance: Instance, request_id: str, rng: random.Random) -> None:
    stream = GrpcStream(instance.server, {**LONG, "max_length": rng.randint(2, 12)}, request_id)
    for _ in range(rng.randint(1, 5)):
        if not stream.next_chunk():
            break
    stream.leave()


def leave_by_deadline(instance: Instance, request_id: str, rng: random.Random) -> None:
    length = rng.choice([2, 8, 3000])
    stream = GrpcStream(instance.server, {**LONG, "max_length": length, "deadline_ms": rng.randint(1, 700)}, request_id)
    stream.finish()
    assert stream.errors == [] or "[DEADLINE_EXCEEDED]" in stream.errors[0]


def leave_the_ensemble(instance: Instance, request_id: str, rng: random.Random) -> None:
    inputs = {**LONG, "max_length": rng.choice([6, 3000])}
    stream = GrpcStream(instance.server, inputs, request_id, model="voxcpm_mp3")
    for _ in range(rng.randint(0, 4)):
        if not stream.next_chunk():
            break
    time.sleep(rng.uniform(0, 0.2))
    stream.leave()


def hang_up(instance: Instance, request_id: str, rng: random.Random) -> None:
    stream = HttpStream(instance.server, {**LONG, "max_length": rng.choice([4, 60]), "id": request_id})
    for _ in range(rng.randint(1, 4)):
        stream.next_event()
    stream.leave()


WAYS: list[Callable[[Instance, str, random.Random], None]] = [
    leave_after_a_while, leave_after_a_while, leave_after_some_chunks, leave_by_deadline, hang_up,
    leave_the_ensemble, leave_the_ensemble,
]


@pytest.mark.parametrize("num_cancels", [80, pytest.param(500, marks=pytest.mark.soak)])
def test_random_cancels(tmp_path: Path, num_cancels: int):
    for attempt in range(MAX_SERVERS):
        log_file = tmp_path / f"tritonserver{attempt}.log"
        try:
            with started(log_file) as instance:
                check_random_cancels(instance, num_cancels)
            return
        except Exception:
            if not died_of_itself(log_file):
                raise
    pytest.fail("every server died of itself")


def check_random_cancels(instance: Instance, num_cancels: int) -> None:
    server, alone = instance.server, heard(instance.server)
    assert server.log_file is not None
    log_start = len(server.log_file.read_text())
    over = threading.Event()
    stayed: list[bool] = []

    def stay() -> None:
        while not over.is_set():
            stayed.append(same_sound(heard(server), alone))

    def leave(index: int) -> None:
        rng = random.Random(1000 + index)
        rng.choice(WAYS)(instance, f"random-{index}", rng)

    staying = threading.Thread(target=stay)
    staying.start()
    try:
        with ThreadPoolExecutor(NUM_CALLERS) as callers:
            leaving = list(callers.map(leave, range(num_cancels)))
    finally:
        over.set()
        staying.join(120)
    assert len(leaving) == num_cancels
    assert stayed
    assert all(stayed), "who stayed heard something else"
    instance.wait_until_idle()
    instance.assert_nothing_is_planned()
    assert instance.status()["num_restarts"] == 0
    check_log(server.log_file.read_text()[log_start:])
    assert call(server, max_length=1).errors == []


def check_log(log: str) -> None:
    """Every request ended once, with the code of a caller who left, and nothing went wrong."""
    ends = re.findall(r"request '(random-\d+)': ([A-Z_]+) after", log)
    assert len(ends) == len({request_id for request_id, _ in ends}), "two ends of one request"
    assert {code for _, code in ends} == {"CANCELLED", "DEADLINE_EXCEEDED"}
    faults = [line for line in log.splitlines() if re.search(r"Error at |INTERNAL|Traceback|^E\d{4}", line)]
    assert faults == []


def heard(server: TritonServer) -> bytes:
    """The answer to one who stays."""
    stream = GrpcStream(server, STAYING)
    stream.finish()
    assert stream.errors == []
    return stream.audio
