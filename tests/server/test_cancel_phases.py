"""Leaving in each phase of a request: what the worker's counters say, and that nothing comes after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.server.clips import clip
from tests.server.instance import Instance, logged_end, logged_ends
from tests.server.streams import LONG, GrpcStream, HttpStream
from tests.server.wire import call
from tests.stopped import stopped
from voxcpm_core.serving.gate import CANCEL_POLL_S
from voxcpm_core.serving.poller import RUNNING_POLL_S

pytestmark = pytest.mark.server
MARGIN = 5  # a shared machine: the exact limits are tested by the soak
NUM_IN_FLIGHT = 2  # steps that can have been launched before the poll
LONG_ENCODING = {  # seconds in the VAE's encoder
    **LONG, "prompt_audio": clip(59), "prompt_text": "x", "reference_audio": clip(59, rate=8_000),
}
ENCODER_REACHED_S = 1.5  # both files are decoded long before
LONG_PREFILL = {  # most of a second in the language models; latents need no encoder
    **LONG, "prompt_latents": np.random.default_rng(0).standard_normal((4 * 3900, 16)), "prompt_text": "x",
}


@pytest.fixture(scope="module")
def instance(narrow: Instance) -> Instance:
    # The process that decodes uploads is started by the first one.
    assert call(narrow.server, prompt_audio=clip(), prompt_text="x", max_length=1).errors == []
    return narrow


@pytest.fixture(scope="module")
def step_s(instance: Instance) -> float:
    return instance.step_s()


@pytest.fixture(autouse=True)
def _idle(instance: Instance) -> Iterator[None]:
    """Every test finds the engine empty and must leave it so."""
    instance.wait_until_idle()
    yield
    instance.wait_until_idle()
    instance.assert_nothing_is_planned()
    assert call(instance.server, max_length=1).errors == []


def running(instance: Instance) -> GrpcStream:
    stream = GrpcStream(instance.server, LONG)
    assert stream.next_chunk()
    return stream


def test_cancel_while_decoding(instance: Instance, step_s: float):
    stream = GrpcStream(instance.server, LONG, "decoding")
    for _ in range(4):
        assert stream.next_chunk()
    before = instance.status()["num_patches"]
    stream.leave()
    freed_s = instance.wait_until_idle()
    assert freed_s <= MARGIN * (RUNNING_POLL_S + NUM_IN_FLIGHT * step_s)
    limit = NUM_IN_FLIGHT + RUNNING_POLL_S / step_s + 1
    assert instance.status()["num_patches"] - before <= MARGIN * limit
    assert logged_end(instance.server, "decoding")[0] == "CANCELLED"


def test_cancel_while_waiting_in_the_engine(instance: Instance, step_s: float):
    first = running(instance)
    waiting = GrpcStream(instance.server, LONG, "in the engine")
    instance.wait_for(waiting=1)
    prefills = instance.status()["num_prefills"]
    waiting.leave()
    assert instance.wait_for(waiting=0) <= MARGIN * (CANCEL_POLL_S + NUM_IN_FLIGHT * step_s)
    assert logged_end(instance.server, "in the engine") == ("CANCELLED", 0)
    assert first.next_chunk()
    assert instance.status()["num_prefills"] == prefills, "it was never planned"
    first.leave()


def test_cancel_at_the_gate(instance: Instance):
    first, second = running(instance), GrpcStream(instance.server, LONG)
    instance.wait_for(waiting=1)
    blocked = GrpcStream(instance.server, LONG, "at the gate")
    time.sleep(CANCEL_POLL_S)
    blocked.leave()
    time.sleep(MARGIN * CANCEL_POLL_S)
    prefills = instance.status()["num_prefills"]
    first.leave()
    instance.wait(lambda status: status["num_prefills"] > prefills)
    second.leave()
    instance.wait_until_idle()
    assert instance.status()["num_prefills"] == prefills + 1, "only the second one followed"


def assert_never_prefilled(instance: Instance, before: dict[str, Any]) -> None:
    instance.wait_until_idle()
    after = instance.status()
    assert (after["num_prefills"], after["num_patches"]) == (before["num_prefills"], before["num_patches"])


def test_cancel_while_audio_is_encoded(instance: Instance):
    before = instance.status()
    stream = GrpcStream(instance.server, LONG_ENCODING, "in the encoder")
    instance.wait_for(num_encodings=before["num_encodings"] + 1)
    stream.leave()
    assert logged_end(instance.server, "in the encoder")[0] == "CANCELLED"
    assert_never_prefilled(instance, before)


@pytest.fixture(scope="module")
def amid_prefill_s(instance: Instance) -> float:
    """How long after sending it LONG_PREFILL is well inside of its prefill."""
    start_s = time.monotonic()
    assert call(instance.server, **{**LONG_PREFILL, "text": "x", "max_length": 1}).errors == []
    return (time.monotonic() - start_s) / 3


def assert_left_amid_prefill(instance: Instance, before: dict[str, Any]) -> None:
    """The pass that ran was the last: with it goes the first patch, and nothing is heard of it."""
    instance.wait_for(num_prefills=before["num_prefills"] + 1)
    instance.wait_until_idle()
    assert instance.status()["num_patches"] - before["num_patches"] <= NUM_IN_FLIGHT


def test_cancel_in_prefill(instance: Instance, amid_prefill_s: float):
    before = instance.status()
    stream = GrpcStream(instance.server, LONG_PREFILL, "in prefill")
    time.sleep(amid_prefill_s)
    assert instance.status()["num_prefills"] == before["num_prefills"], "it was not over"
    stream.leave()
    assert logged_end(instance.server, "in prefill") == ("CANCELLED", 0)
    assert_left_amid_prefill(instance, before)


def test_deadline_in_prefill(instance: Instance, amid_prefill_s: float):
    """It is told then, and not when the prefill is over."""
    before = instance.status()
    stream = GrpcStream(instance.server, {**LONG_PREFILL, "deadline_ms": round(1500 * amid_prefill_s)})
    time.sleep(amid_prefill_s)
    with stopped([before["worker_pid"]]):
        assert instance.status()["num_prefills"] == before["num_prefills"], "it was not over"
        start_s = time.monotonic()
        stream.finish()
        assert time.monotonic() - start_s <= amid_prefill_s / 2 + MARGIN * CANCEL_POLL_S
    (error,) = stream.errors
    assert "[DEADLINE_EXCEEDED]" in error
    assert stream.num_chunks == 0
    assert_left_amid_prefill(instance, before)


@pytest.mark.parametrize("num_chunks", [1, 2, 3])
def test_cancel_around_the_last_patch(instance: Instance, num_chunks: int):
    """The chunks are 1, 1, 2 patches: the caller leaves while the last one is made, and after it."""
    for num_patches in (2, 3, 4):
        stream = GrpcStream(instance.server, {**LONG, "max_length": num_patches})
        for _ in range(num_chunks):
            stream.next_chunk()
        before = instance.status()["num_patches"]
        stream.leave()
        instance.wait_until_idle()
        assert instance.status()["num_patches"] - before <= num_patches


@pytest.mark.parametrize("num_patches", [400, 3000])
def test_deadline_while_decoding(instance: Instance, step_s: float, num_patches: int):
    before = instance.status()["num_patches"]
    stream = GrpcStream(instance.server, {**LONG, "max_length": num_patches, "deadline_ms": 600})
    start_s = time.monotonic()
    stream.finish()
    late_s = time.monotonic() - start_s - 0.6
    (error,) = stream.errors
    assert "[DEADLINE_EXCEEDED]" in error
    assert stream.num_chunks > 0
    assert late_s <= MARGIN * (RUNNING_POLL_S + NUM_IN_FLIGHT * step_s)
    instance.wait_until_idle()
    limit = (0.6 + MARGIN * RUNNING_POLL_S) / step_s + MARGIN * NUM_IN_FLIGHT
    assert instance.status()["num_patches"] - before <= limit * 2, "machine noise is in both times"


def test_deadline_while_waiting_in_the_engine_and_at_the_gate(instance: Instance, step_s: float):
    first = running(instance)
    streams = []
    for place in ("engine", "gate"):
        streams.append(GrpcStream(instance.server, {**LONG, "deadline_ms": 400}, f"late in the {place}"))
        if place == "engine":
            instance.wait_for(waiting=1)
    prefills = instance.status()["num_prefills"]
    start_s = time.monotonic()
    for stream in streams:
        stream.finish()
        (error,) = stream.errors
        assert "[DEADLINE_EXCEEDED]" in error
        assert stream.num_chunks == 0
    assert time.monotonic() - start_s <= 0.4 + MARGIN * CANCEL_POLL_S
    assert instance.wait_for(waiting=0) <= MARGIN * NUM_IN_FLIGHT * step_s
    assert instance.status()["num_prefills"] == prefills, "neither was ever planned"
    assert first.next_chunk()
    first.leave()


def test_deadline_while_audio_is_encoded(instance: Instance):
    before = instance.status()
    start_s = time.monotonic()
    stream = GrpcStream(instance.server, {**LONG_ENCODING, "deadline_ms": round(1000 * ENCODER_REACHED_S)})
    instance.wait_for(num_encodings=before["num_encodings"] + 1)
    with stopped([before["worker_pid"]]):  # it may be faster than the deadline
        stream.finish()
        assert time.monotonic() - start_s <= ENCODER_REACHED_S + MARGIN * CANCEL_POLL_S
    (error,) = stream.errors
    assert "[DEADLINE_EXCEEDED]" in error
    assert stream.num_chunks == 0
    assert_never_prefilled(instance, before)


def test_deadline_around_the_last_patch_gives_all_or_the_error(instance: Instance, step_s: float):
    """Whatever comes first, there is one end: the last chunk, or the error."""
    num_errors = 0
    for extra in (-4.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0):
        deadline_ms = max(1, round(1000 * step_s * (4 + extra)))  # the first is over before any patch
        stream = GrpcStream(instance.server, {**LONG, "max_length": 4, "deadline_ms": deadline_ms})
        stream.finish()
        if stream.errors:
            assert "[DEADLINE_EXCEEDED]" in stream.errors[0]
            num_errors += 1
        else:
            assert stream.num_chunks in (3, 4)
        instance.wait_until_idle()
    assert num_errors >= 1


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_hanging_up_over_http_before_anything_is_written(instance: Instance, verb: str):
    """Triton notices it at its first writes: /generate makes its answer to the end, /generate_stream hardly any."""
    num_patches = 40
    before = instance.status()
    with stopped([before["worker_pid"]]):
        request_id = f"hung up on {verb}"
        inputs = {**LONG, "max_length": num_patches, "id": request_id, "stream": verb == "generate_stream"}
        stream = HttpStream(instance.server, inputs, verb)
        instance.wait_until_it_waits(request_id)
        stream.leave()
    instance.wait(lambda status: status["num_prefills"] > before["num_prefills"])
    instance.wait_until_idle()
    made = instance.status()["num_patches"] - before["num_patches"]
    if verb == "generate":
        assert made == num_patches
        assert logged_ends(instance.server, request_id) == []
    else:
        assert made < num_patches
        assert logged_end(instance.server, request_id)[0] == "CANCELLED"


@pytest.mark.parametrize("num_events", [1, 2, 5])
def test_hanging_up_over_http_from_the_first_written_chunk_on(instance: Instance, step_s: float, num_events: int):
    stream = HttpStream(instance.server, {**LONG, "id": f"http-{num_events}"})
    for _ in range(num_events):
        assert "audio" in (stream.next_event() or {})
    before = instance.status()["num_patches"]
    stream.leave()
    freed_s = instance.wait_until_idle()
    # Triton notices at the write after the one that the closed socket answered.
    chunk_patches = 4
    noticed = 2 * chunk_patches
    assert freed_s <= MARGIN * (RUNNING_POLL_S + (noticed + NUM_IN_FLIGHT) * step_s)
    assert instance.status()["num_patches"] - before <= MARGIN * (noticed + NUM_IN_FLIGHT + 1)
    assert logged_end(instance.server, f"http-{num_events}")[0] == "CANCELLED"
