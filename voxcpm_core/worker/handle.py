"""The parent's handle of an engine in a worker process."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from voxcpm_core.checkpoint.opened import open_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import RequestError
from voxcpm_core.fanout import Fanout
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.paths import as_path, as_text
from voxcpm_core.types import EngineRequest, EngineStats, EventSink, Failed, FloatArray, PadSide, StepOutput
from voxcpm_core.worker.answers import Answers
from voxcpm_core.worker.inbox import Inbox
from voxcpm_core.worker.lending import Lender
from voxcpm_core.worker.messages import Answer, Cancel, CheckLora, Encode, Ready, Start, Submit, Turn
from voxcpm_core.worker.placement import Placement, place
from voxcpm_core.worker.ring import Ring, RingGeometry
from voxcpm_core.worker.supervisor import Supervisor

log = logging.getLogger(__name__)


def start_worker(config: EngineConfig, device: str) -> WorkerHandle:
    """A warm engine on `device` ("cpu", "cuda:1") in a process of its own. Raises StartupError."""
    return WorkerHandle(dataclasses.replace(config, device=device), Placement("MODEL", "0"))


class WorkerHandle:
    """Thread-safe. Events come from one thread of this handle, so sinks must be quick.

    When the worker dies all its streams end with INTERNAL; until a new one is warm, requests get NOT_READY at once.
    """

    def __init__(self, config: EngineConfig, placement: Placement) -> None:
        """Start a worker and wait until it is warm; raises what keeps it from starting."""
        checkpoint = open_checkpoint(config.model)
        self.model, self.tokenizer = checkpoint.model, checkpoint.tokenizer
        self.config = config
        geometry = RingGeometry.of(self.model, config)
        self._ring = Ring.create(geometry)
        self._lender = Lender(self._ring)
        self._inbox = Inbox(self.model, self._lender)
        self._fanout = Fanout()
        self._answers = Answers()
        self._ids = itertools.count()
        self._worker_stats: tuple[int, ...]
        self.gpu: str
        self._watch: Callable[[EngineStats, EngineStats], None] = lambda before, after: None
        device = place(config.device, placement, os.environ)
        # Resolved here: a later worker neither asks the hub again nor looks in another working directory.
        worker_config = dataclasses.replace(
            config, device=device.configured, model=as_text(checkpoint.folder.absolute()),
            lora_root=_absolute(config.lora_root), checksums=_absolute(config.checksums),
        )
        start = Start(worker_config, self.model, device.placement, geometry, self._ring.fd)
        self._supervisor = Supervisor(start, device.environ, self._take, self._end_all)

    @property
    def is_ready(self) -> bool:
        return self._supervisor.worker_pid != 0

    def submit(self, request: EngineRequest, sink: EventSink) -> int:
        """Hand a validated request over and return its stream id."""
        stream_id = next(self._ids)
        if not self._supervisor.give(Submit(stream_id, request), lambda: self._fanout.add(stream_id, sink)):
            sink(Failed(self._supervisor.refusal()))
        return stream_id

    def cancel(self, stream_id: int) -> None:
        """Ask for a stream to end with CANCELLED; nothing happens when it has ended already."""
        if stream_id in self._fanout:
            self._supervisor.give(Cancel(stream_id))

    def encode(self, waveform: FloatArray, pad: PadSide) -> Future[FloatArray]:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate; fails with RequestError."""
        return self._ask(lambda question_id: Encode(question_id, waveform, pad))

    def check_lora(self, path: str) -> Future[LoraFacts]:
        """What an adapter's folder, below the folder of all adapters, holds; fails with RequestError."""
        return self._ask(lambda question_id: CheckLora(question_id, path))

    def stats(self) -> EngineStats:
        """As of the worker's latest turn; nothing runs and waits where there is none."""
        pid = self._supervisor.worker_pid
        stats = EngineStats(*self._worker_stats)
        if pid == 0:
            stats = stats._replace(running=0, waiting=0, pages_used=0, pages_kept=0, voice_cache_bytes=0)
        return stats._replace(num_restarts=self._supervisor.num_restarts, worker_pid=pid)

    def watch_turns(self, watch: Callable[[EngineStats, EngineStats], None]) -> None:
        """Tell the worker's counters before and after each turn of its loop, quickly: from the thread of the events."""
        self._watch = watch

    def close(self) -> None:
        """End every stream with NOT_READY, and the worker; idempotent."""
        self._supervisor.close()
        self._ring.close()

    def _ask(self, question: Callable[[int], object]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # a caller who stops waiting must not cancel what is answered here
        question_id = next(self._ids)
        if not self._supervisor.give(question(question_id), lambda: self._answers.add(question_id, future)):
            future.set_exception(self._supervisor.refusal())
        return future

    def _take(self, message: Ready | Turn | Answer) -> None:
        if isinstance(message, Turn):
            before, self._worker_stats = self._worker_stats, message.stats
            events = self._inbox.unpacked(message)
            if any(isinstance(event, StepOutput) for event in events):
                self._supervisor.worked()
            self._fanout.deliver(events)
            self._watch(EngineStats(*before), EngineStats(*message.stats))
        elif isinstance(message, Answer):
            self._answers.deliver(message)
        else:
            self._worker_stats = tuple(message.stats)
            self.gpu = message.gpu
            if message.warning:
                log.warning(message.warning)

    def _end_all(self, error: RequestError) -> None:
        self._lender.forget_worker()
        self._fanout.fail_all(error)
        self._answers.fail_all(error)


def _absolute(path: str) -> str:
    """"" stays what it is: not set."""
    return path and as_text(as_path(path).absolute())
