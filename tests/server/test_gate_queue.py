"""While execute() blocks at the gate, Triton's own queue rules: its size, timeouts, priorities and cancels."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from tests.server.conftest import QUEUE_SIZE
from tests.server.instance import GENEROUS_S, POLL_S, Instance, logged_end, logged_ends
from tests.server.scraped import Scrape
from tests.server.streams import LONG, GrpcStream
from tests.server.wire import call, generate, generate_stream

pytestmark = pytest.mark.server
NUM_AT_GATE = 4  # the instances of config.pbtxt: each blocks with one
NUM_AHEAD = 1  # Triton takes the next request out of its queue while execute() still blocks with the one before
SHORT = {**LONG, "max_length": 2}
PENDING = "nv_inference_pending_request_count"
FULL = "Exceeds maximum queue size"
SOON_S = 2.0
ENDED_S = 2.0  # after the worker's death; five times that on a shared machine
SETTLED_S = 0.3
REFUSED_S = 0.05  # with room for others, as above


class Jam:
    """An engine whose places are all taken, also those at the gate and the one ahead of them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._streams: dict[str, GrpcStream] = {}  # by request id, in order
        instance.wait_until_idle()
        assert self._add().next_chunk()
        self._add()
        instance.wait_for(running=1, waiting=1)
        for _ in range(NUM_AT_GATE + NUM_AHEAD):
            self._add()
            time.sleep(SETTLED_S)
        self.num_prefills = instance.status()["num_prefills"]

    @property
    def inside(self) -> list[GrpcStream]:
        """Those that the engine has: one runs, one waits."""
        return list(self._streams.values())[:2]

    @property
    def outside(self) -> list[GrpcStream]:
        """Those at the gate, and the one ahead of them."""
        return list(self._streams.values())[2:]

    def assert_holds(self) -> None:
        """Nothing has moved since the jam began: what was answered was answered behind it."""
        status = self.instance.status()
        assert (status["running"], status["waiting"], status["num_prefills"]) == (1, 1, self.num_prefills)

    def clear(self) -> None:
        for stream in self._streams.values():
            stream.leave()

    def clear_one_by_one(self, num_behind: int) -> None:
        """So that those behind reach the gate one after the other: Triton looks for free instances every half second,
        and two that it finds would race."""
        *entered, (_, ahead) = self._streams.items()
        num_arriving = num_behind + NUM_AHEAD
        seen = set(self.instance.queue())
        for index, (request_id, stream) in enumerate(entered):
            stream.leave()
            assert logged_end(self.instance.server, request_id)
            if index < num_arriving:
                seen |= self._wait_for_arrival(seen)
        ahead.leave()

    def _wait_for_arrival(self, seen: set[str]) -> set[str]:
        end_s = time.monotonic() + GENEROUS_S
        while not (arrived := set(self.instance.queue()) - seen):
            assert time.monotonic() < end_s, "nothing comes to a free instance"
            time.sleep(POLL_S)
        return arrived

    def _add(self) -> GrpcStream:
        request_id = f"jam-{uuid.uuid4()}"
        stream = self._streams[request_id] = GrpcStream(self.instance.server, LONG, request_id)
        return stream


@pytest.fixture
def jam(narrow: Instance) -> Iterator[Jam]:
    jam = Jam(narrow)
    yield jam
    jam.clear()
    # Who has left may still be in Triton's queue, which hands on in order.
    last_s = time.monotonic() + GENEROUS_S
    while call(narrow.server, max_length=1).errors and time.monotonic() < last_s:
        time.sleep(SETTLED_S)
    narrow.wait_until_idle()


@pytest.mark.parametrize("refused_s", [5 * REFUSED_S, pytest.param(REFUSED_S, marks=pytest.mark.soak)])
def test_a_full_queue_refuses_in_tritons_words(jam: Jam, refused_s: float):
    server = jam.instance.server
    with ExitStack() as queued:
        for index in range(QUEUE_SIZE):
            queued.callback(GrpcStream(server, LONG, f"queued-{index}").leave)
        time.sleep(SETTLED_S)
        assert Scrape(server).value(PENDING, model="voxcpm") == QUEUE_SIZE
        starts_s = [time.monotonic()]
        over_grpc = GrpcStream(server, SHORT)
        over_grpc.finish()
        assert FULL in over_grpc.errors[0]
        starts_s += [time.monotonic()]
        status, answer = generate(server, {**SHORT, "stream": False, "encoding": "base64"})
        assert (status, FULL in answer["error"]) == (503, True)
        starts_s += [time.monotonic()]
        status, (answer,) = generate_stream(server, {**SHORT, "encoding": "base64"})
        assert (status, FULL in answer["error"]) == (503, True)
        took_s = np.diff([*starts_s, time.monotonic()])
        assert max(took_s) < refused_s, took_s
        jam.assert_holds()


def test_a_timeout_ends_the_waiting_in_the_queue(jam: Jam):
    start_s = time.monotonic()
    late = GrpcStream(jam.instance.server, SHORT, "late", timeout_us=200_000)
    time.sleep(2 * SETTLED_S)
    # Triton looks for late requests when it is woken by the next one.
    GrpcStream(jam.instance.server, SHORT).leave()
    late.finish()
    assert "timeout" in late.errors[0].lower()
    assert time.monotonic() - start_s < SOON_S
    jam.assert_holds()


def test_priorities_rule_and_equals_keep_their_order(jam: Jam):
    names = {"low": 3, "first": 2, "second": 0, "high": 1}  # 0: the default, which is 2
    streams = {name: GrpcStream(jam.instance.server, SHORT, name, priority) for name, priority in names.items()}
    time.sleep(SETTLED_S)
    jam.assert_holds()
    ended: list[str] = []

    def finish(name: str) -> None:
        streams[name].finish()
        ended.append(name)

    readers = [threading.Thread(target=finish, args=[name]) for name in names]
    for reader in readers:
        reader.start()
    jam.clear_one_by_one(len(names))
    for reader in readers:
        reader.join(60)
    assert ended == ["high", "first", "second", "low"]
    assert all(stream.errors == [] for stream in streams.values())


def test_a_bad_request_waits_like_any_other(jam: Jam):
    bad = GrpcStream(jam.instance.server, {"target_text": " "}, "bad")
    reader = threading.Thread(target=bad.finish)
    reader.start()
    reader.join(2 * SETTLED_S)
    assert reader.is_alive()
    jam.assert_holds()
    jam.clear()
    reader.join(GENEROUS_S)
    assert bad.errors == ["[INVALID_TEXT] request bad: target_text is empty"]


def test_who_leaves_the_queue_never_reaches_the_model(jam: Jam):
    server = jam.instance.server
    # They count in the queue's size until Triton takes them out, as the one ahead may: a place is left for who stays.
    leaving = [GrpcStream(server, LONG, f"leaving-{index}") for index in range(QUEUE_SIZE - 1 - NUM_AHEAD)]
    time.sleep(SETTLED_S)
    for stream in leaving:
        stream.leave()
    time.sleep(SETTLED_S)
    staying = GrpcStream(server, SHORT, "staying")
    jam.assert_holds()
    jam.clear()
    staying.finish()
    assert staying.errors == []
    jam.instance.wait_until_idle()
    assert [end for index in range(QUEUE_SIZE) for end in logged_ends(server, f"leaving-{index}")] == []


@pytest.mark.parametrize("ended_s", [5 * ENDED_S, pytest.param(ENDED_S, marks=pytest.mark.soak)])
def test_a_dead_worker_opens_the_gate_and_all_behind_it_are_answered(jam: Jam, ended_s: float):
    """Also those in Triton's queue: none waits until the worker is back."""
    server, status = jam.instance.server, jam.instance.status()
    queued = [GrpcStream(server, SHORT, f"behind-{index}") for index in range(QUEUE_SIZE - NUM_AHEAD)]
    time.sleep(SETTLED_S)
    jam.assert_holds()
    killed_s = time.monotonic()
    os.kill(status["worker_pid"], signal.SIGKILL)
    for stream in queued:
        stream.finish()
        assert "[NOT_READY]" in stream.errors[0]
    assert time.monotonic() - killed_s < ended_s
    assert not jam.instance.status()["ready"]
    jam.instance.wait_for(ready=True)
