"""Whatever happens in whatever order: one FINAL, order kept, no question after FINAL, the place given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.fake_triton import FakeBackend, FakeSender
from voxcpm_core.audio.encode import make_encoder
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.chunker import Chunker
from voxcpm_core.serving.gate import Gate
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.serving.responses import Responses, StreamInfo
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.serving.stream import OutputStream
from voxcpm_core.types import Admitted, Failed, FinishReason, Patch

GENEROUS_S = 5.0


@pytest.fixture(scope="module")
def pool() -> Iterator[SenderPool]:
    pool = SenderPool(2, "laws")
    yield pool
    assert pool.close(GENEROUS_S)


class Scene:
    """One stream between a fake sender and a scripted engine."""

    def __init__(self, pool: SenderPool, sender: FakeSender, stream: bool = True) -> None:
        self.sender = sender
        self.backend = FakeBackend()
        responses = Responses(self.backend)
        self.gate = Gate(1, 1, 100, 16)
        options = OutputOptions(stream=stream)
        chunker = Chunker(options, make_encoder("pcm_s16le", 16_000, stream), 0.01)
        self.stream = OutputStream(
            Channel(sender, responses, "r1"), self.gate.enter(1, lambda: None), chunker, responses,
            StreamInfo("r1", 7, 16_000, options), pool, self.backend.Logger.log_info,
        )
        self.num_cancels = 0
        self._ended = False
        self._lock = threading.Lock()

    def submit(self) -> None:
        self.stream.submitted(self._cancel)

    def emit(self, event: Admitted | Patch | Failed) -> None:
        """As an engine: nothing after a terminal event."""
        with self._lock:
            if self._ended:
                return
            self._ended = isinstance(event, Failed) or (isinstance(event, Patch) and event.finish_reason is not None)
            self.stream.sink(event)

    def _cancel(self) -> None:
        self.num_cancels += 1
        self.emit(Failed(RequestError(ErrorCode.CANCELLED, "cancelled by the client")))


def patch(index: int, is_last: bool = False) -> Patch:
    audio = np.full(160, 0.01 * index, np.float32)
    return Patch(index, np.zeros((2, 4), np.float32), audio, FinishReason.STOP if is_last else None)


@settings(max_examples=60, deadline=None)
@given(
    num_patches=st.integers(1, 12),
    fails_after=st.none() | st.integers(0, 12),
    leaves_after=st.none() | st.integers(0, 12),
    send_fails_at=st.none() | st.integers(1, 5),
    stream=st.booleans(),
    delays_ms=st.lists(st.sampled_from([0, 0, 0, 1, 3]), min_size=1, max_size=5),
)
def test_laws(
    pool: SenderPool, num_patches: int, fails_after: int | None, leaves_after: int | None,
    send_fails_at: int | None, stream: bool, delays_ms: list[int],
):
    delays = iter(delays_ms * 20)
    sender = FakeSender(lambda: next(delays) / 1000, send_fails_at)
    scene = Scene(pool, sender, stream)
    stop_polling = threading.Event()

    def poll() -> None:
        while not stop_polling.is_set() and not scene.stream.cancel_if_gone():
            time.sleep(0.0005)

    scene.submit()
    poller = threading.Thread(target=poll)
    poller.start()
    scene.emit(Admitted())
    for index in range(num_patches):
        if fails_after == index:
            scene.emit(Failed(RequestError(ErrorCode.INTERNAL, "the engine failed on this request")))
        if leaves_after == index:
            sender.gone.set()
        scene.emit(patch(index, index == num_patches - 1))
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
        assert sum(chunk["num_samples"] for chunk in chunks) == 160 * num_patches
    if fails_after is None and leaves_after is None and send_fails_at is None:
        assert not sender.errors
    if not stream:
        assert len(chunks) <= 1
    assert not any(chunk["is_last"] for chunk in chunks[:-1])


def test_a_fault_while_sending_ends_the_stream_in_the_engine_and_is_told_without_its_text(pool: SenderPool):
    sender = FakeSender(fails_at=1)
    scene = Scene(pool, sender)
    scene.submit()
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
    scene.emit(patch(0))
    assert sender.final.wait(GENEROUS_S)
    assert scene.num_cancels == 0
    scene.submit()
    assert scene.num_cancels == 1
    assert sender.num_finals == 1


def test_the_place_changes_hands_when_the_engine_says_so_not_when_it_is_sent(pool: SenderPool):
    release = threading.Event()
    sender = FakeSender(lambda: 0.0 if release.wait(GENEROUS_S) else 1.0)
    scene = Scene(pool, sender)
    scene.submit()
    assert scene.stream.is_waiting
    scene.emit(Admitted())
    assert not scene.stream.is_waiting
    scene.emit(patch(0))
    scene.emit(patch(1, is_last=True))
    assert scene.gate.num_inside == 0
    assert not sender.final.is_set()
    release.set()
    assert sender.final.wait(GENEROUS_S)
