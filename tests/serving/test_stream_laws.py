"""Whatever happens in whatever order: one FINAL, order kept, no question after FINAL, the place given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.fake_triton import FakeBackend, FakeSender
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.gate import Gate
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.serving.output import Output
from voxcpm_core.serving.responses import TritonResponses
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.serving.stream import OutputStream
from voxcpm_core.types import Admitted, EngineRequest, Failed, FinishReason, Patch

GENEROUS_S = 5.0
MODEL = ModelConfig.from_json(tiny_config("2"))


@pytest.fixture(scope="module")
def pool() -> Iterator[SenderPool]:
    pool = SenderPool(2, "laws")
    yield pool
    assert pool.close(GENEROUS_S)


def request(seed: int = 7, max_patches: int = 1000) -> EngineRequest:
    return EngineRequest("r1", (101,), None, None, 1, max_patches, 2, False, 2.0, 1.0, 10, seed, True)


class Scene:
    """One stream between a fake sender and a scripted engine, which this is too."""

    def __init__(self, pool: SenderPool, sender: FakeSender, stream: bool = True) -> None:
        self.sender = sender
        self.backend = FakeBackend()
        responses = TritonResponses(self.backend)
        self.gate = Gate(1, 1, 100, 16)
        place = self.gate.line_up(1)
        place.enter(lambda: None)
        self.stream = OutputStream(
            Channel(sender, responses, "r1"), place,
            Output("r1", OutputOptions(stream=stream), MODEL), pool, self.backend.Logger.log_info,
        )
        self.num_cancels = 0
        self.seeds: list[int] = []  # of what was submitted
        self.while_submitting = lambda: None
        self._sink: Callable[[Admitted | Patch | Failed], None] | None = None
        self._lock = threading.Lock()
        self._submitted = threading.Condition(self._lock)

    def submit(self, request: EngineRequest, sink: Callable[[Admitted | Patch | Failed], None]) -> int:
        with self._lock:
            self.seeds.append(request.seed)
            self._sink = sink
            self._submitted.notify()
        self.while_submitting()
        return len(self.seeds)

    def cancel(self, stream_id: int) -> None:
        self.num_cancels += 1
        if stream_id == len(self.seeds):
            self.emit(Failed(RequestError(ErrorCode.CANCELLED, "cancelled by the client")))

    def emit(self, event: Admitted | Patch | Failed) -> None:
        """As an engine: nothing after a terminal event."""
        with self._lock:
            sink = self._sink
            if isinstance(event, Failed) or (isinstance(event, Patch) and event.finish_reason is not None):
                self._sink = None
        if sink is not None:
            sink(event)

    def has_attempt(self, count: int) -> bool:
        """Wait until the attempt with this number was submitted; False when the stream ended before."""
        end_s = time.monotonic() + GENEROUS_S
        with self._lock:
            while len(self.seeds) < count and not self.stream.ended and time.monotonic() < end_s:
                self._submitted.wait(0.001)
            return len(self.seeds) >= count


def patch(index: int, is_last: bool = False) -> Patch:
    audio = np.full(160, 0.01 * index, np.float32)
    return Patch(index, np.zeros((2, 4), np.float32), audio, FinishReason.STOP if is_last else None)


@settings(max_examples=100, deadline=None)
@given(
    num_patches=st.integers(1, 12),
    num_attempts=st.integers(1, 3),
    num_runaways=st.integers(0, 3),
    fails_after=st.none() | st.integers(0, 40),
    leaves_after=st.none() | st.integers(0, 40),
    send_fails_at=st.none() | st.integers(1, 5),
    stream=st.booleans(),
    delays_ms=st.lists(st.sampled_from([0, 0, 0, 1, 3]), min_size=1, max_size=5),
)
def test_laws(
    pool: SenderPool, num_patches: int, num_attempts: int, num_runaways: int, fails_after: int | None,
    leaves_after: int | None, send_fails_at: int | None, stream: bool, delays_ms: list[int],
):
    """An attempt ends with its last patch but one, unless it is one of the runaways."""
    num_attempts = 1 if stream else num_attempts
    delays = iter(delays_ms * 60)
    sender = FakeSender(lambda: next(delays) / 1000, send_fails_at)
    scene = Scene(pool, sender, stream)
    stop_polling = threading.Event()

    def poll() -> None:
        while not stop_polling.is_set() and not scene.stream.cancel_if_gone():
            time.sleep(0.0005)

    scene.stream.run(scene, [request(seed, num_patches + 1) for seed in range(num_attempts)])
    poller = threading.Thread(target=poll)
    poller.start()
    num_emitted = num_wanted = 0
    for attempt in range(min(num_attempts, num_runaways + 1)):
        if not scene.has_attempt(attempt + 1):
            break
        scene.emit(Admitted())
        num_wanted = num_patches + (attempt < num_runaways)
        for index in range(num_wanted):
            if fails_after == num_emitted:
                scene.emit(Failed(RequestError(ErrorCode.INTERNAL, "the engine failed on this request")))
            if leaves_after == num_emitted:
                sender.gone.set()
            scene.emit(patch(index, index == num_wanted - 1))
            num_emitted += 1
    assert sender.final.wait(GENEROUS_S)
    stop_polling.set()
    poller.join()
    assert sender.num_finals == 1
    assert sender.violations == []
    assert scene.gate.num_inside == 0
    assert scene.stream.ended
    chunks = sender.chunks
    assert [chunk["chunk_index"] for chunk in chunks] == list(range(len(chunks)))
    assert len(sender.errors) <= 1
    if not sender.errors:
        assert chunks[-1]["is_last"]
        assert sum(chunk["num_samples"] for chunk in chunks) == 160 * num_wanted
        assert {chunk["seed"] for chunk in chunks} == {min(num_attempts - 1, num_runaways)}
    if fails_after is None and leaves_after is None and send_fails_at is None:
        assert not sender.errors
    if not stream:
        assert len(chunks) <= 1
    assert not any(chunk["is_last"] for chunk in chunks[:-1])


def test_a_fault_while_sending_ends_the_stream_in_the_engine_and_is_told_without_its_text(pool: SenderPool):
    sender = FakeSender(fails_at=1)
    scene = Scene(pool, sender)
    scene.stream.run(scene, [request()])
    scene.emit(patch(0))
    assert sender.final.wait(GENEROUS_S)
    assert scene.num_cancels == 1
    (error,) = sender.errors
    assert error.message == "[INTERNAL] request r1: an internal fault ended the request"
    assert any("RuntimeError" in line for line in scene.backend.Logger.lines)
    assert not any("SECRET" in line for line in scene.backend.Logger.lines)


def test_a_stream_that_failed_before_the_engine_named_it_is_cancelled_then(pool: SenderPool):
    sender = FakeSender(fails_at=1)
    scene = Scene(pool, sender)

    def fail_at_once() -> None:
        scene.emit(patch(0))
        assert sender.final.wait(GENEROUS_S)
        assert scene.num_cancels == 0

    scene.while_submitting = fail_at_once
    scene.stream.run(scene, [request()])
    assert scene.num_cancels == 1
    assert sender.num_finals == 1


def test_a_caller_who_leaves_between_two_attempts_gets_no_other(pool: SenderPool):
    release = threading.Event()
    sender = FakeSender()
    scene = Scene(pool, sender, stream=False)
    scene.stream.run(scene, [request(seed, 2) for seed in range(3)])
    scene.while_submitting = lambda: release.wait(GENEROUS_S) and None
    scene.emit(Admitted())
    scene.emit(patch(0))
    scene.emit(patch(1, is_last=True))
    assert scene.has_attempt(2)
    assert scene.stream.is_waiting
    assert scene.gate.num_inside == 1
    sender.gone.set()
    assert scene.stream.cancel_if_gone()
    release.set()
    assert sender.final.wait(GENEROUS_S)
    assert scene.seeds == [0, 1]
    assert [error.code for error in sender.errors] == ["CANCELLED"]
    assert scene.gate.num_inside == 0


def test_the_place_changes_hands_when_the_engine_says_so_not_when_it_is_sent(pool: SenderPool):
    release = threading.Event()
    sender = FakeSender(lambda: 0.0 if release.wait(GENEROUS_S) else 1.0)
    scene = Scene(pool, sender)
    scene.stream.run(scene, [request()])
    assert scene.stream.is_waiting
    scene.emit(Admitted())
    assert not scene.stream.is_waiting
    scene.emit(patch(0))
    scene.emit(patch(1, is_last=True))
    assert scene.gate.num_inside == 0
    assert not sender.final.is_set()
    release.set()
    assert sender.final.wait(GENEROUS_S)
