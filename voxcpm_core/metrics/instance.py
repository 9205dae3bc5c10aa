"""The metrics of one instance, from its start to its unloading."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from voxcpm_core.handle import EngineHandle
from voxcpm_core.local.status import InstanceName
from voxcpm_core.metrics import catalog
from voxcpm_core.metrics.board import Board
from voxcpm_core.metrics.request import RequestMeter
from voxcpm_core.metrics.steps import Steps
from voxcpm_core.types import EngineStats

FLUSH_S = 0.5
ALIVE_S = 5  # how old the time stamp gets


class MeasuredEngine(EngineHandle, Protocol):
    @property
    def gpu(self) -> str:
        """The GPU's UUID as NVML has it, or "cpu"."""

    def watch_turns(self, watch: Callable[[EngineStats, EngineStats], None]) -> None:
        """From now on tell the counters before and after each turn of the engine's loop, from its events' thread."""


class Metrics(Protocol):
    def request(self) -> RequestMeter:
        """Of a request that has just been received."""

    def drains(self) -> None:
        """No more requests are taken."""

    def close(self) -> None: ...


class NoMetrics:
    """Where Triton has none."""

    def request(self) -> RequestMeter:
        return RequestMeter()

    def drains(self) -> None:
        return

    def close(self) -> None:
        return


def start_metrics(name: InstanceName, engine: MeasuredEngine, pb_utils: Any) -> Metrics:
    """`pb_utils` is Triton's Python backend module. Never raises: speech does not need metrics."""
    # The process makes the labels those of this load of the model: see Board.
    values = (name.model, name.version, name.instance, engine.gpu, str(os.getpid()))
    labels = dict(zip(catalog.LABELS, values, strict=True))
    try:
        return InstanceMetrics(Board(pb_utils, labels, pb_utils.Logger.log_warn), engine)
    except Exception as error:
        pb_utils.Logger.log_info(f"no metrics of this model, which Triton does not take: {error}")
        return NoMetrics()


class InstanceMetrics:
    """A thread of its own brings Triton up to date twice a second, and when the last request ends."""

    def __init__(self, board: Board, engine: MeasuredEngine) -> None:
        self._board = board
        self._engine = engine
        self._lock = threading.Lock()
        self._num_open = 0
        self._num_restarts = 0
        self._is_draining = False
        self._wake = threading.Event()
        self._closing = False
        engine.watch_turns(Steps(board.record).turn)
        self._update()
        self._thread = threading.Thread(target=self._run, name="voxcpm-metrics", daemon=True)
        self._thread.start()

    def request(self) -> RequestMeter:
        with self._lock:
            self._num_open += 1
        return RequestMeter(self._board.record, self._ended)

    def drains(self) -> None:
        self._is_draining = True
        self._wake.set()

    def close(self) -> None:
        """Take the metrics from the server; nothing may be served any more."""
        self._closing = True
        self._wake.set()
        self._thread.join()
        self._board.close()

    def _ended(self) -> None:
        with self._lock:
            self._num_open -= 1
            if self._num_open == 0:
                self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            if self._closing:
                return
            self._update()

    def _update(self) -> None:
        stats, record = self._engine.stats(), self._board.record
        record(catalog.READY, float(self._engine.is_ready and not self._is_draining))
        record(catalog.DRAINING, float(self._is_draining))
        record(catalog.OPEN, self._num_open)
        record(catalog.RUNNING, stats.running)
        record(catalog.WAITING, stats.waiting)
        record(catalog.MAX_RUNNING, stats.max_running)
        record(catalog.MAX_WAITING, self._engine.config.max_waiting)
        record(catalog.PAGES_USED, stats.pages_used)
        record(catalog.PAGES_KEPT, stats.pages_kept)
        record(catalog.PAGES, stats.pages_total)
        record(catalog.VOICE_BYTES, stats.voice_cache_bytes)
        record(catalog.UPDATED, time.time() // ALIVE_S * ALIVE_S)
        if stats.num_restarts > self._num_restarts:
            record(catalog.RESTARTS, stats.num_restarts - self._num_restarts)
            self._num_restarts = stats.num_restarts
        self._board.flush()
