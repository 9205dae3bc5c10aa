"""Requests to a handle, and waiting for what comes of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.engine.harness import Received
from tests.noise_voice import NOISE
from voxcpm_core.config import EngineConfig
from voxcpm_core.handle import EngineHandle
from voxcpm_core.prepare import prepare
from voxcpm_core.types import SamplingParams, SpeechRequest, StreamEvent

CONFIG = EngineConfig(model=NOISE, max_running=4, max_model_len=512, kv_cache_mib=16)
GENEROUS_S = 30.0
ENDLESS = SpeechRequest("Hello", params=SamplingParams(ignore_stop=True, length_cap=False, seed=1))
SHORT = SpeechRequest("Hello", params=SamplingParams(max_length=3, seed=5))


class Waiting(Received):
    """Received events, with flags for the first patch and for the end, and the time of the end."""

    def __init__(self) -> None:
        super().__init__()
        self.has_patch, self.has_ended = threading.Event(), threading.Event()
        self.ended_s = 0.0

    def __call__(self, event: StreamEvent) -> None:
        super().__call__(event)
        if self.patches:
            self.has_patch.set()
        if self.ended:
            self.ended_s = time.monotonic()
            self.has_ended.set()


def submit(engine: EngineHandle, request: SpeechRequest) -> tuple[int, Waiting]:
    received = Waiting()
    prepared = prepare(request, engine.model, engine.config, engine.tokenizer, lambda: 1)
    return engine.submit(prepared, received), received


def finished(engine: EngineHandle, request: SpeechRequest) -> Waiting:
    """Submit a request and wait for its end."""
    _, received = submit(engine, request)
    assert received.has_ended.wait(GENEROUS_S)
    return received


def wait_until(condition: Callable[[], bool], timeout_s: float = GENEROUS_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.01)
