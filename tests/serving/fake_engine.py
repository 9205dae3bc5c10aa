"""An engine without a model: deterministic patches at a chosen speed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError, shutting_down
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import Admitted, EngineRequest, EngineStats, EventSink, Failed, FinishReason, Patch


def fake_patch(model: ModelConfig, request: EngineRequest, index: int) -> Patch:
    """The patch that every run of this request has at `index`."""
    rng = np.random.default_rng([request.seed, index])
    latents = rng.standard_normal((model.patch_size, model.feat_dim), dtype=np.float32)
    audio = rng.uniform(-1, 1, model.samples_per_patch).astype(np.float32) if request.wants_audio else None
    return Patch(index, latents, audio, FinishReason.LENGTH if index == request.max_patches - 1 else None)


class FakeEngine:
    """Runs `max_running` streams in lock-step, one patch per `step_s`; the rest waits in order."""

    def __init__(
        self, model: ModelConfig, tokenizer: TextTokenizer, config: EngineConfig, step_s: float = 0.0
    ) -> None:
        self.model, self.config, self.tokenizer = model, config, tokenizer
        self.step_s = step_s
        self.fails_at: dict[str, int] = {}  # request id: patch index
        self.stops_at: dict[int, int] = {}  # seed: index of the last patch
        self.submitted: list[EngineRequest] = []
        self.most_waiting = 0
        self.cancelled: list[int] = []
        self._ids = itertools.count()
        self._cond = threading.Condition()
        self._waiting: dict[int, tuple[EngineRequest, EventSink]] = {}
        self._running: dict[int, tuple[EngineRequest, EventSink]] = {}
        self._num_patches: dict[int, int] = {}
        self.gpu = "GPU-0"
        self.num_restarts = self.num_steps = self.num_made = 0
        self._watch: Callable[[EngineStats, EngineStats], None] = lambda before, after: None
        self._closed = self.is_lost = False
        self.refusal: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        return not self._closed and not self.is_lost

    def submit(self, request: EngineRequest, sink: EventSink) -> int:
        if self.refusal is not None:
            raise self.refusal
        stream_id = next(self._ids)
        with self._cond:
            self.submitted.append(request)
            self._waiting[stream_id] = request, sink
            self.most_waiting = max(self.most_waiting, len(self._waiting))
            self._cond.notify()
        return stream_id

    def cancel(self, stream_id: int) -> None:
        with self._cond:
            self.cancelled.append(stream_id)
            stream = self._waiting.pop(stream_id, None) or self._running.pop(stream_id, None)
            self._num_patches.pop(stream_id, None)
        if stream is not None:
            stream[1](Failed(RequestError(ErrorCode.CANCELLED, "cancelled by the client")))

    def stats(self) -> EngineStats:
        with self._cond:
            return EngineStats(
                running=len(self._running), waiting=len(self._waiting), max_running=self.config.max_running,
                pages_used=0, pages_total=10_000, num_steps=self.num_steps, num_dit_calls=0, num_prefills=0,
                num_patches=self.num_made, collected_ns=self.num_steps, num_restarts=self.num_restarts,
                busy_ns=round(self.num_steps * self.step_s * 1e9),
            )

    def watch_turns(self, watch: Callable[[EngineStats, EngineStats], None]) -> None:
        self._watch = watch

    def close(self) -> None:
        with self._cond:
            self._closed = True
            self._cond.notify()
        self._thread.join()
        for stream_id in [*self._waiting, *self._running]:
            _, sink = self._waiting.pop(stream_id, None) or self._running.pop(stream_id)
            sink(Failed(shutting_down()))

    def _run(self) -> None:
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._closed or self._waiting or self._running)
                if self._closed:
                    return
                while self._waiting and len(self._running) < self.config.max_running:
                    stream_id = next(iter(self._waiting))
                    self._running[stream_id] = self._waiting.pop(stream_id)
                    self._num_patches[stream_id] = 0
                    self._running[stream_id][1](Admitted())
            time.sleep(self.step_s)
            before = self.stats()
            with self._cond:
                self.num_steps += 1
                self.num_made += len(self._running)
                for stream_id, (request, sink) in list(self._running.items()):
                    self._step(stream_id, request, sink)
            self._watch(before, self.stats())

    def _step(self, stream_id: int, request: EngineRequest, sink: EventSink) -> None:
        index = self._num_patches[stream_id]
        self._num_patches[stream_id] += 1
        if self.fails_at.get(request.request_id) == index:
            self._forget(stream_id)
            sink(Failed(RequestError(ErrorCode.INTERNAL, "the engine failed on this request")))
            return
        patch = fake_patch(self.model, request, index)
        if self.stops_at.get(request.seed) == index:
            patch = replace(patch, finish_reason=FinishReason.STOP)
        if patch.finish_reason is not None:
            self._forget(stream_id)
        sink(patch)

    def _forget(self, stream_id: int) -> None:
        del self._running[stream_id], self._num_patches[stream_id]
