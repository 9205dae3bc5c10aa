"""How soon those are gone who leave, or whose deadline comes: the contract's own figures, on a machine to oneself."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from tests.server.instance import Instance
from tests.server.streams import LONG, GrpcStream
from tests.server.test_cancel_random import started
from voxcpm_core.serving.gate import CANCEL_POLL_S
from voxcpm_core.serving.poller import RUNNING_POLL_S

pytestmark = [pytest.mark.server, pytest.mark.soak]
NUM_IN_FLIGHT = 2
NUM_SLOTS = 3
WIRE_S = 0.01  # of the cancellation to the server, and of the status back


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with started(tmp_path_factory.mktemp("exact") / "tritonserver.log") as instance:
        yield instance


@pytest.fixture(autouse=True)
def _idle(instance: Instance) -> Iterator[None]:
    instance.wait_until_idle()
    yield
    instance.wait_until_idle()


def running(instance: Instance, **inputs: int) -> GrpcStream:
    stream = GrpcStream(instance.server, {**LONG, **inputs})
    assert stream.next_chunk()
    return stream


def steps_s(instance: Instance) -> list[float]:
    """Of what runs now, in several short measurements: a machine gives its time to others, too."""
    found = []
    for _ in range(5):
        before, start_s = instance.status()["num_steps"], time.monotonic()
        time.sleep(0.3)
        found.append((time.monotonic() - start_s) / (instance.status()["num_steps"] - before))
    return found


def steps_of_one_s(instance: Instance) -> list[float]:
    stream = running(instance)
    found = steps_s(instance)
    stream.leave()
    return found


def nearly_all(times_s: list[float]) -> float:
    """What nine of ten stay below: an operating system that gives the time to others is let off."""
    return sorted(times_s)[len(times_s) * 9 // 10]


def test_who_leaves_a_running_stream(instance: Instance):
    """It is planned no more after two steps and 50 ms; in patches that holds every time."""
    rng, freed_s, planned = random.Random(7), [], []
    alone_s = steps_of_one_s(instance)
    for _ in range(60):
        instance.wait_until_idle()
        stream = running(instance)
        for _ in range(rng.randint(0, 3)):
            stream.next_chunk()
        time.sleep(rng.uniform(0, 0.1))
        before = instance.status()["num_patches"]
        stream.leave()
        freed_s.append(instance.wait_until_idle())
        planned.append(instance.status()["num_patches"] - before)
    alone_s += steps_of_one_s(instance)  # a machine is not as fast all the time
    print(f"step {min(alone_s):.4f} s, freed after {nearly_all(freed_s):.4f} s and {max(planned)} patches")
    assert max(planned) <= NUM_IN_FLIGHT + (RUNNING_POLL_S + WIRE_S) / min(alone_s)
    assert nearly_all(freed_s) <= RUNNING_POLL_S + NUM_IN_FLIGHT * max(alone_s) + WIRE_S


def test_who_leaves_while_waiting(instance: Instance):
    """He is gone from the engine's queue after 200 ms."""
    rng = random.Random(8)
    full = [running(instance) for _ in range(NUM_SLOTS)]
    full_s = steps_s(instance)
    gone_s = []
    for _ in range(30):
        stream = GrpcStream(instance.server, LONG)
        instance.wait_for(waiting=1)
        time.sleep(rng.uniform(0, 0.2))
        stream.leave()
        gone_s.append(instance.wait_for(waiting=0))
    for stream in full:
        stream.leave()
    print(f"step {min(full_s):.4f} s, gone from the queue after {nearly_all(gone_s):.4f} s")
    assert nearly_all(gone_s) <= CANCEL_POLL_S + NUM_IN_FLIGHT * max(full_s) + WIRE_S


def test_a_deadline_while_running(instance: Instance):
    """The error is with the caller 50 ms after it, and the slot is free two steps later."""
    rng, first = random.Random(9), running(instance)
    alone_s = steps_s(instance)
    first.leave()
    late_s, freed_s = [], []
    for _ in range(40):
        instance.wait_until_idle()
        deadline_ms = rng.randint(200, 600)
        start_s = time.monotonic()
        stream = running(instance, deadline_ms=deadline_ms)
        stream.finish()
        late_s.append(time.monotonic() - start_s - deadline_ms / 1000)
        freed_s.append(instance.wait_until_idle())
        assert "[DEADLINE_EXCEEDED]" in stream.errors[0]
    print(f"told after {nearly_all(late_s):.4f} s, freed after {nearly_all(freed_s):.4f} s more")
    assert nearly_all(late_s) <= RUNNING_POLL_S + WIRE_S
    assert nearly_all(freed_s) <= NUM_IN_FLIGHT * max(alone_s) + WIRE_S


def test_a_deadline_while_waiting(instance: Instance):
    rng = random.Random(10)
    full = [running(instance) for _ in range(NUM_SLOTS)]
    late_s = []
    for _ in range(30):
        deadline_ms = rng.randint(20, 400)
        start_s = time.monotonic()
        stream = GrpcStream(instance.server, {**LONG, "deadline_ms": deadline_ms})
        stream.finish()
        late_s.append(time.monotonic() - start_s - deadline_ms / 1000)
        assert "[DEADLINE_EXCEEDED]" in stream.errors[0]
        assert stream.num_chunks == 0
    for stream in full:
        stream.leave()
    print(f"told after {nearly_all(late_s):.4f} s")
    assert nearly_all(late_s) <= CANCEL_POLL_S + WIRE_S
