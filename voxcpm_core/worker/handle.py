"""The parent's handle of an engine in a worker process, which is started again when it dies."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import threading
import time
from concurrent.futures import Future

from voxcpm_core.checkpoint.opened import open_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import ErrorCode, RequestError, StartupError
from voxcpm_core.fanout import Fanout
from voxcpm_core.types import EngineRequest, EngineStats, EventSink, Failed, FloatArray, PadSide, StepOutput
from voxcpm_core.worker.encodings import Encodings
from voxcpm_core.worker.inbox import Inbox
from voxcpm_core.worker.lending import Lender
from voxcpm_core.worker.messages import Cancel, Encode, Encoded, Start, Submit, Turn
from voxcpm_core.worker.placement import Placement, place
from voxcpm_core.worker.process import WorkerProcess
from voxcpm_core.worker.restarts import MAX_CRASHES, RestartPolicy
from voxcpm_core.worker.ring import Ring, RingGeometry

log = logging.getLogger(__name__)

STOPPED_RETRY_MS = 60_000


def start_worker(config: EngineConfig, device: str) -> WorkerHandle:
    """A warm engine on `device` ("cpu", "cuda:1") in a process of its own. Raises StartupError."""
    return WorkerHandle(dataclasses.replace(config, device=device), Placement("MODEL", "0"))


class WorkerHandle:
    """Thread-safe. Events come from one thread of this handle, so sinks must be quick.

    When the worker dies all its streams end with INTERNAL; until a new one is warm, requests get NOT_READY at once.
    After `MAX_CRASHES` deaths without a patch in between no new one is started.
    """

    def __init__(self, config: EngineConfig, placement: Placement) -> None:
        """Start a worker and wait until it is warm; raises what keeps it from starting."""
        checkpoint = open_checkpoint(config.model)
        self.model, self.tokenizer = checkpoint.model, checkpoint.tokenizer
        self.config = config
        geometry = RingGeometry.of(self.model, config)
        self._ring = Ring.create(geometry)
        device = place(config.device, placement, os.environ)
        # A hub id was resolved here; the worker does not ask the hub again.
        worker_config = dataclasses.replace(config, device=device.configured, model=str(checkpoint.folder))
        self._start = Start(worker_config, device.placement, geometry, self._ring.fd)
        self._environ = device.environ
        self._lender = Lender(self._ring)
        self._inbox = Inbox(self.model, self._lender)
        self._fanout = Fanout()
        self._encodings = Encodings()
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)  # closing
        self._policy = RestartPolicy()
        self._ready_worker: WorkerProcess | None = None
        self._closing = False
        self._num_restarts = 0
        self._start_seconds = 0.0
        try:
            worker = self._run_worker()
        except StartupError:
            self._ring.close()
            raise
        self._thread = threading.Thread(target=self._supervise, args=(worker,), name="voxcpm-worker", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        return self._ready_worker is not None

    def submit(self, request: EngineRequest, sink: EventSink) -> int:
        """Hand a validated request over and return its stream id."""
        stream_id = next(self._ids)
        with self._lock:
            worker = self._ready_worker
            if worker is not None:
                self._fanout.add(stream_id, sink)
        if worker is None:
            sink(Failed(self._refusal()))
        else:
            worker.send(Submit(stream_id, request))
        return stream_id

    def cancel(self, stream_id: int) -> None:
        """Ask for a stream to end with CANCELLED; nothing happens when it has ended already."""
        worker = self._ready_worker
        if worker is not None and stream_id in self._fanout:
            worker.send(Cancel(stream_id))

    def encode(self, waveform: FloatArray, pad: PadSide) -> Future[FloatArray]:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate; fails with RequestError."""
        future: Future[FloatArray] = Future()
        future.set_running_or_notify_cancel()  # a caller who stops waiting must not cancel what is answered here
        encode_id = next(self._ids)
        with self._lock:
            worker = self._ready_worker
            if worker is not None:
                self._encodings.add(encode_id, future)
        if worker is None:
            future.set_exception(self._refusal())
        else:
            worker.send(Encode(encode_id, waveform, pad))
        return future

    def stats(self) -> EngineStats:
        """As of the worker's latest turn; nothing runs and waits where there is none."""
        worker = self._ready_worker
        stats = EngineStats(*self._worker_stats)
        if worker is None:
            return stats._replace(running=0, waiting=0, pages_used=0, num_restarts=self._num_restarts)
        return stats._replace(num_restarts=self._num_restarts, worker_pid=worker.pid)

    def close(self) -> None:
        """End every stream with NOT_READY, and the worker; idempotent."""
        with self._lock:
            self._closing = True
            self._wake.notify_all()
            worker = self._current_worker
        worker.hang_up()
        self._thread.join()

    def _refusal(self) -> RequestError:
        if self._closing:
            return RequestError(ErrorCode.NOT_READY, "the engine is shutting down, retry after 1000 ms")
        if self._policy.gave_up:
            message = f"the engine crashed {MAX_CRASHES} times in a row and stays down until the model is loaded again"
            return RequestError(ErrorCode.NOT_READY, f"{message}, retry after {STOPPED_RETRY_MS} ms")
        retry_ms = max(1000, round(self._start_seconds * 1000))
        return RequestError(ErrorCode.NOT_READY, f"the engine is being started again, retry after {retry_ms} ms")

    def _run_worker(self) -> WorkerProcess:
        """Start one and wait until it serves; raises StartupError."""
        started_s = time.monotonic()
        worker = WorkerProcess(self._start, self._environ)
        with self._lock:
            self._current_worker = worker
            if self._closing:
                worker.kill()
        ready = worker.wait_until_ready()
        self._start_seconds = time.monotonic() - started_s
        if ready.warning:
            log.warning(ready.warning)
        self._worker_stats = tuple(ready.stats)
        with self._lock:
            self._ready_worker = worker
        return worker

    def _supervise(self, worker: WorkerProcess | None) -> None:
        while worker is not None:
            self._deliver_until_end(worker)
            worker = self._restarted()
        self._ring.close()

    def _deliver_until_end(self, worker: WorkerProcess) -> None:
        try:
            while not self._closing:
                message = worker.receive()
                if isinstance(message, Turn):
                    self._worker_stats = message.stats
                    self._deliver(message)
                elif isinstance(message, Encoded):
                    self._encodings.deliver(message)
        except (EOFError, OSError):
            pass
        with self._lock:
            self._ready_worker = None
        self._lender.forget_worker()
        ended = RequestError(ErrorCode.INTERNAL, "the engine process ended unexpectedly")
        error = self._refusal() if self._closing else ended
        self._fanout.fail_all(error)
        self._encodings.fail_all(error)
        worker.end()
        if not self._closing:
            log.error("the engine process %d %s", worker.pid, worker.describe_end())

    def _deliver(self, turn: Turn) -> None:
        events = self._inbox.unpacked(turn)
        if any(isinstance(event, StepOutput) for event in events):
            self._policy.worked()
        self._fanout.deliver(events)

    def _restarted(self) -> WorkerProcess | None:
        """A new worker in place of one that ended; None when there is to be none any more."""
        while not self._closing:
            pause_s = self._policy.crashed()
            if self._policy.gave_up:
                log.error("the engine crashed %d times in a row; it is not started again", MAX_CRASHES)
            with self._lock:
                if self._wake.wait_for(lambda: self._closing, None if self._policy.gave_up else pause_s):
                    return None
            self._num_restarts += 1
            try:
                return self._run_worker()
            except StartupError as error:
                log.error("the engine could not be started again: %s", error)
        return None
