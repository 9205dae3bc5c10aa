"""One worker process after another: a new one is started when it dies."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from voxcpm_core.errors import ErrorCode, RequestError, StartupError, not_ready, shutting_down
from voxcpm_core.worker.messages import Start
from voxcpm_core.worker.process import WorkerProcess
from voxcpm_core.worker.restarts import MAX_CRASHES, RestartPolicy

log = logging.getLogger(__name__)

MIN_RETRY_MS, STOPPED_RETRY_MS = 1000, 60_000


class Supervisor:
    """Thread-safe. After `MAX_CRASHES` deaths without `worked` in between no new worker is started."""

    def __init__(
        self, start: Start, environ: Mapping[str, str],
        take: Callable[[Any], None], end_all: Callable[[RequestError], None],
    ) -> None:
        """Start a worker and wait until it is warm; raises StartupError.

        `take` gets every message of a worker, its Ready first; `end_all` the error of all that it was given once it
        has ended. Both are called by one thread at a time.
        """
        self._owner_pid = os.getpid()
        self._start, self._environ = start, environ
        self._take, self._end_all = take, end_all
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)  # closing
        self._policy = RestartPolicy()
        self._current: WorkerProcess  # also while it starts
        self._ready: WorkerProcess | None = None
        self._closing = False
        self._start_seconds = 0.0
        self._expected_s = 0.0  # when the next worker should be ready, on the monotonic clock
        self.num_restarts = 0
        worker = self._run_worker()
        self._thread = threading.Thread(target=self._supervise, args=(worker,), name="voxcpm-worker", daemon=True)
        self._thread.start()

    @property
    def worker_pid(self) -> int:
        """Of the worker that serves; 0 while there is none."""
        worker = self._serving()
        return 0 if worker is None else worker.pid

    def give(self, command: object, expect: Callable[[], None] = lambda: None) -> bool:
        """Send a command to the worker that serves; False while there is none.

        `expect` is called before: what it registers gets the worker's answer, or is there when `end_all` is called.
        """
        with self._lock:
            worker = self._serving()
            if worker is None:
                return False
            expect()
        worker.send(command)
        return True

    def refusal(self) -> RequestError:
        """Why nothing can be given to a worker now."""
        if self._is_forked():
            return RequestError(ErrorCode.NOT_READY, "the engine belongs to the process that this one was forked from")
        if self._closing:
            return shutting_down()
        if self._policy.gave_up:
            crashed = f"the engine crashed {MAX_CRASHES} times in a row"
            return not_ready(f"{crashed} and stays down until the model is loaded again", STOPPED_RETRY_MS)
        missing_s = self._expected_s - time.monotonic()
        return not_ready("the engine is being started again", max(MIN_RETRY_MS, round(missing_s * 1000)))

    def worked(self) -> None:
        """The worker has generated something for a caller."""
        self._policy.worked()

    def close(self) -> None:
        """End the worker, and what it was given with NOT_READY; idempotent."""
        if self._is_forked():
            return
        with self._lock:
            self._closing = True
            self._wake.notify_all()
            worker = self._current
        worker.hang_up()
        self._thread.join()

    def _is_forked(self) -> bool:
        """Whether this is a copy that a fork made: it shares the owner's connection, and must not touch it."""
        return os.getpid() != self._owner_pid

    def _serving(self) -> WorkerProcess | None:
        return None if self._is_forked() else self._ready

    def _run_worker(self) -> WorkerProcess:
        """Start one and wait until it serves; raises StartupError."""
        started_s = time.monotonic()
        worker = WorkerProcess(self._start, self._environ)
        with self._lock:
            self._current = worker
            if self._closing:
                worker.kill()
        ready = worker.wait_until_ready()
        self._start_seconds = time.monotonic() - started_s
        self._take(ready)
        with self._lock:
            self._ready = worker
        return worker

    def _supervise(self, worker: WorkerProcess | None) -> None:
        while worker is not None:
            self._take_until_end(worker)
            worker = self._restarted()

    def _take_until_end(self, worker: WorkerProcess) -> None:
        try:
            while not self._closing:
                self._take(worker.receive())
        except (EOFError, OSError):
            pass
        with self._lock:
            self._ready = None
        died = RequestError(ErrorCode.INTERNAL, "the engine process ended unexpectedly")
        self._end_all(self.refusal() if self._closing else died)
        ending = worker.end()
        if not self._closing:
            log.error("the engine process %d %s", worker.pid, ending)

    def _restarted(self) -> WorkerProcess | None:
        """A new worker in place of one that ended; None when there is to be none any more."""
        while not self._closing:
            pause_s = self._policy.crashed()
            self._expected_s = time.monotonic() + pause_s + self._start_seconds
            if self._policy.gave_up:
                log.error("the engine crashed %d times in a row; it is not started again", MAX_CRASHES)
            with self._lock:
                if self._wake.wait_for(lambda: self._closing, None if self._policy.gave_up else pause_s):
                    return None
            self.num_restarts += 1
            try:
                return self._run_worker()
            except StartupError as error:
                if self._closing:
                    return None
                log.error("the engine could not be started again: %s", error)
        return None
