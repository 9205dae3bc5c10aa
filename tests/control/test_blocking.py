"""`voxcpm_blocking` beside instances on engines without a model: what `voxcpm` gives, as one answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.control.conftest import Fleet, Light
from tests.serving.fake_triton import FakeRequest, FakeSender, text
from tests.serving.served import GENEROUS_S, speech, wav_bytes
from tests.signature import FOR_THE_ENSEMBLE, REPOSITORY, signature, without
from voxcpm_core.errors import ConfigError

SEED = {"seed": np.array([3], np.int64)}


def unary(request: FakeRequest) -> FakeRequest:
    request.sender = FakeSender(is_unary=True)
    return request


def endless(request_id: str) -> FakeRequest:
    return unary(speech(request_id, patches=10_000, ignore_stop=np.array([True]), length_cap=np.array([False])))


def finished(request: FakeRequest) -> FakeSender:
    assert request.sender.final.wait(GENEROUS_S)
    assert (request.sender.num_finals, request.sender.violations) == (1, [])
    return request.sender


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.002)


def message(light: Light, request: FakeRequest) -> str:
    light.model.execute([unary(request)])
    return finished(request).errors[0].message


def test_its_signature_is_that_of_voxcpm():
    (given, made), (own_given, own_made) = signature("voxcpm"), signature("voxcpm_blocking")
    assert without(own_given, {"model"}) == without(given, {"stream"})
    assert own_made == without(made, FOR_THE_ENSEMBLE)
    assert "decoupled" not in (REPOSITORY / "voxcpm_blocking" / "config.pbtxt").read_text()


@pytest.mark.parametrize(
    "inputs",
    [
        {}, {"format": text("mp3")}, {"return_latents": np.array([True])}, {"format": text("flac")},
        {"prompt_audio": text(wav_bytes()), "prompt_text": text("x")}, {"retry_badcase": np.array([True])},
    ],
)  # fmt: skip
def test_it_gives_what_voxcpm_gives_with_stream_false(fleet: Fleet, inputs: dict[str, np.ndarray]):
    loaded, blocking = fleet.load(), fleet.blocking()
    expected = loaded.say(**inputs, stream=np.array([False])).chunks
    request = unary(speech(patches=3, **SEED, **inputs))
    blocking.model.execute([request])
    for given, wanted in zip(finished(request).chunks, expected, strict=True):
        latents, wanted_latents = given.pop("latents", None), wanted.pop("latents", None)
        np.testing.assert_array_equal(latents, wanted_latents)
        assert given == wanted


def test_errors_are_those_of_voxcpm(fleet: Fleet):
    fleet.load()
    blocking = fleet.blocking()
    assert message(blocking, speech(format=text("aac"))).startswith("[INVALID_PARAMETER] request r1: format")
    assert message(blocking, speech(target_text=text(" "))).startswith("[INVALID_TEXT] request r1")
    assert message(blocking, speech(voice=text("nobody"))).startswith("[UNKNOWN_VOICE]")
    assert message(blocking, speech(model=text(b"\xff"))).startswith("[INVALID_PARAMETER] request r1: model")
    assert "model: no engine is called 'other'" in message(blocking, speech(model=text("other")))
    unknown = speech()
    unknown.parameter_values = {"sed": 3}
    assert "unknown parameter 'sed'" in message(blocking, unknown)
    odd = speech()
    odd.request_id = lambda: b"\xff".decode()  # type: ignore[method-assign]
    assert "the request id is not valid UTF-8" in message(blocking, odd)


def test_many_are_inside_at_once_and_enter_in_the_order_in_which_they_came(fleet: Fleet):
    loaded, blocking = fleet.load(step_s=0.001, max_running=1, max_waiting=1), fleet.blocking()
    # The text of every second one is long to read.
    words = [text("word " * (150 if index % 2 == 0 else 2)) for index in range(12)]
    requests = [unary(speech(f"r{index}", patches=3, target_text=each)) for index, each in enumerate(words)]
    start_s = time.monotonic()
    blocking.model.execute(requests)
    assert time.monotonic() - start_s < GENEROUS_S / 2
    for index, request in enumerate(requests):
        (chunk,) = finished(request).chunks
        assert (chunk["request_id"], chunk["is_last"]) == (f"r{index}".encode(), True)
    assert [each.request_id for each in loaded.engine.submitted] == [request.id for request in requests]


def test_cancel_and_deadline_wherever_it_waits(fleet: Fleet):
    loaded, blocking = fleet.load(step_s=0.002, max_running=1, max_waiting=1), fleet.blocking()
    runs, waits, at_gate, staying = (endless(name) for name in ("runs", "waits", "at_gate", "staying"))
    late = endless("late")
    late.inputs_by_name["deadline_ms"] = np.array([200], np.int32)
    blocking.model.execute([runs, waits, at_gate, late, staying])
    assert "[DEADLINE_EXCEEDED] request late" in finished(late).errors[0].message
    for request in (at_gate, waits, runs):
        request.sender.gone.set()
        (error,) = finished(request).errors
        assert (error.code, error.message.split("]")[0]) == ("CANCELLED", "[CANCELLED")
    wait_until(lambda: loaded.engine.stats().running == 1)
    assert loaded.ask("cancel", request_id="staying")["cancelled"] == 1
    assert "cancelled by its id" in finished(staying).errors[0].message


def test_too_many_are_refused_at_once_and_answers_make_room(fleet: Fleet):
    fleet.load(step_s=0.001)
    blocking = fleet.blocking(VOXCPM_MAX_BLOCKING="2")
    inside = [endless(name) for name in ("one", "two")]
    blocking.model.execute(inside)
    refused = speech("three")
    assert message(blocking, refused) == "[OVERLOADED] request three: 2 requests are inside, retry after 1000 ms"
    assert refused.sender.errors[0].code == "UNAVAILABLE"
    inside[0].sender.gone.set()
    finished(inside[0])
    wait_until(lambda: blocking.model._engines.num_open < 2)
    short = unary(speech("four"))
    blocking.model.execute([short])
    assert finished(short).errors == []


def test_a_drained_engine_refuses_and_the_other_one_serves(fleet: Fleet):
    first, second = (fleet.load(instance=f"i{index}") for index in range(2))
    blocking = fleet.blocking()
    first.instance._adapter.drain.begin(None)
    for _ in range(3):
        request = unary(speech())
        blocking.model.execute([request])
        assert finished(request).errors == []
    assert (len(first.engine.submitted), len(second.engine.submitted)) == (0, 3)
    second.instance._adapter.drain.begin(None)
    assert message(blocking, speech()).startswith("[DRAINING]")


def test_an_engine_that_is_unloaded_answers_first_and_its_successor_is_found(fleet: Fleet):
    old, blocking = fleet.load(step_s=0.005), fleet.blocking()
    request = unary(speech(patches=60))
    blocking.model.execute([request])
    wait_until(lambda: old.engine.stats().running == 1)
    closing = threading.Thread(target=old.close)
    closing.start()
    wait_until(lambda: old.instance._adapter.drain.has_begun)
    assert "[NOT_READY]" in message(blocking, speech("late"))
    assert finished(request).errors == []
    closing.join(GENEROUS_S)
    assert "no engine can be reached" in message(blocking, speech("later"))
    fleet.load(version="2")
    request = unary(speech())
    blocking.model.execute([request])
    assert finished(request).errors == []


def test_without_threads_it_goes_on_one_by_one(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    fleet.load()
    blocking = fleet.blocking()
    monkeypatch.setattr("voxcpm_core.serving.adapter.in_thread", refuse)
    requests = [unary(speech(f"r{index}")) for index in range(3)]
    blocking.model.execute(requests)
    for request in requests:
        assert finished(request).errors == []


def test_a_bad_setting_is_named(fleet: Fleet):
    with pytest.raises(ConfigError, match="max_blocking: expected at least 1, got 0"):
        fleet.blocking(VOXCPM_MAX_BLOCKING="0")
