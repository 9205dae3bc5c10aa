"""What comes through a door is what the engine's instance itself would have answered, and nobody disturbs others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.doors.conftest import COUNT, Loaded
from tests.serving.fake_triton import FakeRequest, FakeSender, text
from tests.serving.served import GENEROUS_S, speech, wav_bytes
from voxcpm_core.doors.door import CONNECTED_AGAIN_S, RETRY_S, Door
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.serving.gate import CANCEL_POLL_S
from voxcpm_core.serving.poller import RUNNING_POLL_S

Load = Callable[..., Loaded]
MARGIN = 5
SEED = {"seed": np.array([3], np.int64)}


def finished(request: FakeRequest) -> FakeSender:
    assert request.sender.final.wait(GENEROUS_S)
    assert request.sender.num_finals == 1
    assert request.sender.violations == []
    return request.sender


def started(request: FakeRequest, more_than: int = 0) -> FakeRequest:
    """Wait until it has had more responses than that."""
    wait_until(lambda: len(request.sender.responses) > more_than)
    return request


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """What does not depend on which patches share a chunk."""
    constant = {name: {chunk[name] for chunk in chunks} for name in ("request_id", "seed", "sample_rate")}
    latents = b"".join(chunk["latents"].tobytes() for chunk in chunks if "latents" in chunk)
    num_samples = sum(chunk["num_samples"] for chunk in chunks)
    audio = b"".join(chunk["audio"] for chunk in chunks)
    return {**constant, "latents": latents, "num_samples": num_samples, "audio": audio}


def asked_by_all_doors(loaded: Loaded) -> int:
    """How many of the requests that each door is given its own engine gets; afterwards all doors are connected."""
    before = len(loaded.engine.submitted)
    for index, door in enumerate(loaded.doors):
        request = speech(f"r{index}")
        door.execute([request])
        finished(request)
    return len(loaded.engine.submitted) - before


def endless(request_id: str) -> FakeRequest:
    return speech(request_id, patches=10_000, ignore_stop=np.array([True]), length_cap=np.array([False]))


def test_a_door_answers_as_the_instance_does(load: Load):
    loaded = load()
    for inputs in (
        SEED, {**SEED, "format": text("mp3")}, {**SEED, "return_latents": np.array([True])},
        {**SEED, "prompt_audio": text(wav_bytes()), "prompt_text": text("x")}, {"format": text("aac")},
    ):  # fmt: skip
        direct, through = speech(**inputs), speech(**inputs)
        loaded.host.execute([direct])
        loaded.doors[0].execute([through])
        direct_sender, sender = finished(direct), finished(through)
        assert [(e.message, e.code) for e in sender.errors] == [(e.message, e.code) for e in direct_sender.errors]
        assert joined(sender.chunks) == joined(direct_sender.chunks)


def test_a_drawn_id_is_one_for_all_responses(load: Load):
    request = speech("")
    load().doors[1].execute([request])
    (request_id,) = {chunk["request_id"] for chunk in finished(request).chunks}
    assert request_id.startswith(b"vx-")


def test_bytes_that_are_no_text_are_refused_as_ever(load: Load):
    request = speech()
    request.request_id = lambda: b"\xff".decode()  # type: ignore[method-assign]
    load().doors[0].execute([request])
    (error,) = finished(request).errors
    assert "[INVALID_PARAMETER]" in error.message
    assert "the request id is not valid UTF-8" in error.message


def test_a_crowd_at_all_doors(load: Load):
    loaded = load(step_s=0.001, max_running=16)
    instances = [loaded.host, *loaded.doors]
    requests = [speech(f"r{i}", patches=2 + i % 9, seed=np.array([i], np.int64)) for i in range(40)]
    threads = [
        threading.Thread(target=instance.execute, args=[requests[i :: len(instances)]])
        for i, instance in enumerate(instances)
    ]
    for thread in threads:
        thread.start()
    for i, request in enumerate(requests):
        chunks = finished(request).chunks
        assert {chunk["request_id"] for chunk in chunks} == {f"r{i}".encode()}
        assert {chunk["seed"] for chunk in chunks} == {i}
        assert [chunk["chunk_index"] for chunk in chunks] == list(range(len(chunks)))
    for thread in threads:
        thread.join()


def test_a_cancel_at_a_door_reaches_the_engine(load: Load):
    loaded = load(step_s=0.001)
    leaving, staying = endless("leaving"), endless("staying")
    loaded.doors[0].execute([leaving, staying])
    started(leaving)
    started(staying)
    left_s = time.monotonic()
    leaving.sender.gone.set()
    (error,) = finished(leaving).errors
    assert time.monotonic() - left_s < MARGIN * RUNNING_POLL_S
    assert error.code == "CANCELLED"
    wait_until(lambda: len(loaded.engine.cancelled) == 1)  # the caller is answered first
    started(staying, more_than=len(staying.sender.responses))


def test_the_gate_holds_a_door_and_lets_in_in_order(load: Load):
    loaded = load(step_s=0.001, max_running=1, max_waiting=1)
    first, second = endless("first"), endless("second")
    loaded.host.execute([first, second])
    started(first)
    late = [speech(f"late-{i}", patches=2) for i in range(3)]
    threads = []
    for door, request in zip(loaded.doors, late, strict=True):
        threads.append(threading.Thread(target=door.execute, args=[[request]]))
        threads[-1].start()
        wait_until(lambda due=request.id: due in loaded.host._adapter.roster.waiting())
    assert all(thread.is_alive() for thread in threads), "execute() blocks, so Triton's queue rules"
    left_s = time.monotonic()
    late[1].sender.gone.set()
    threads[1].join(GENEROUS_S)
    assert time.monotonic() - left_s < MARGIN * CANCEL_POLL_S
    assert finished(late[1]).errors[0].code == "CANCELLED"
    for running in (first, second):
        running.sender.gone.set()
    for index in (0, 2):
        assert finished(late[index]).errors == []
    assert [request.request_id for request in loaded.engine.submitted] == ["first", "second", "late-0", "late-2"]
    for thread in threads:
        thread.join()


def test_an_engine_that_drains_says_so_through_the_doors(load: Load):
    loaded = load(step_s=0.001, max_running=1, max_waiting=1)
    finishing, waiting, at_gate, late = speech("finishing", 200), endless("waiting"), speech("gate"), speech("late")
    loaded.doors[0].execute([finishing, waiting])
    blocked = threading.Thread(target=loaded.doors[1].execute, args=[[at_gate]])
    blocked.start()
    wait_until(lambda: loaded.host._adapter.roster.num_open == 3)
    loaded.host._adapter.drain.begin(None)
    loaded.doors[2].execute([late])
    blocked.join(GENEROUS_S)
    for request in (at_gate, late):
        (error,) = finished(request).errors
        assert (error.code, error.message.split()[0]) == ("UNAVAILABLE", "[DRAINING]")
    assert finished(finishing).errors == []
    loaded.host._adapter.drain.begin(0)
    assert "[DRAINING]" in finished(waiting).errors[0].message


def test_a_door_that_ends_takes_its_callers_along_and_no_others(load: Load):
    loaded = load(step_s=0.001)
    mine, others = endless("mine"), endless("others")
    loaded.doors[0].execute([mine])
    loaded.doors[1].execute([others])
    started(mine)
    started(others)
    loaded.doors[0].close()
    end_s = time.monotonic() + GENEROUS_S
    while not loaded.engine.cancelled:
        assert time.monotonic() < end_s
        time.sleep(0.001)
    assert finished(mine).errors
    assert not others.sender.final.is_set()
    assert loaded.engine.stats().running == 1


def test_an_engine_that_closes_says_so_through_the_doors(load: Load):
    loaded = load(step_s=0.001)
    running = endless("running")
    loaded.doors[0].execute([running])
    started(running)
    loaded.host.close()
    (error,) = finished(running).errors
    assert "[NOT_READY]" in error.message


def test_a_door_whose_engine_has_ended_says_so_at_once(load: Load):
    """Triton starts no stub again, so to try again helps nobody."""
    loaded = load()
    served = speech("served")
    loaded.doors[2].execute([served])
    finished(served)
    loaded.host.close()
    caught, late = speech("caught"), speech("late")
    loaded.doors[2].execute([caught])
    assert finished(caught).errors
    start_s = time.monotonic()
    loaded.doors[2].execute([late])
    (error,) = finished(late).errors
    assert error.message == (
        "[NOT_READY] request late: the instance with the engine has ended; the model must be loaded again"
    )
    assert time.monotonic() - start_s < MARGIN * CONNECTED_AGAIN_S


def test_a_door_that_never_had_an_engine_refuses(load: Load, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("voxcpm_core.doors.door.FIRST_CONNECTED_S", 0.1)
    loaded = load()
    stranger = Door(InstancePlace("nobody", "1", "nobody_0", "KIND_CPU 0", 1, COUNT), loaded.backend)
    request = speech("early")
    stranger.execute([request])
    stranger.close()
    (error,) = finished(request).errors
    assert error.message.endswith("the instance with the engine cannot be reached, retry after 1000 ms")


def test_two_loads_of_a_model_do_not_mix(load: Load):
    """A model that is loaded anew is served by the old load until the new one is ready."""
    old = load()
    assert asked_by_all_doors(old) == COUNT - 1
    new = load()
    for loaded in (new, old):
        assert asked_by_all_doors(loaded) == COUNT - 1


def test_a_door_whose_engine_has_ended_takes_no_place_of_the_next(load: Load):
    old = load()
    assert asked_by_all_doors(old) == COUNT - 1
    old.host.close()
    new = load(has_doors=False)
    time.sleep(MARGIN * RETRY_S)
    new.open_doors()
    assert asked_by_all_doors(new) == COUNT - 1
