"""A few threads that work off many ordered queues, none of which can hold up the others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
NUM_THREADS = 4
SLOW_S = 0.05  # a handler that takes longer keeps its thread, and the pool gets another


class Lane(Generic[T]):
    """An ordered queue whose items one thread at a time handles. `put` never blocks."""

    def __init__(self, pool: SenderPool, handle: Callable[[T], None]) -> None:
        self._pool = pool
        self._handle = handle
        self._lock = threading.Lock()
        self._items: deque[T] = deque()
        self._scheduled = False
        self.is_slow = False

    def put(self, item: T) -> None:
        with self._lock:
            self._items.append(item)
            if self._scheduled:
                return
            self._scheduled = True
        self._pool.schedule(self)

    def run_one(self) -> bool:
        """Handle the next item; returns whether more are waiting. The handler must not raise."""
        with self._lock:
            item = self._items.popleft()
        start_s = time.monotonic()
        self._handle(item)
        self.is_slow = time.monotonic() - start_s > SLOW_S
        with self._lock:
            self._scheduled = bool(self._items)
            return self._scheduled


class _Worker:
    """A pool thread's state, guarded by the pool's lock."""

    def __init__(self) -> None:
        self.busy_since_s: float | None = None
        self.is_detached = False  # stuck with a slow lane: ends after it


class SenderPool:
    """`num_threads` workers take ready lanes in turn, one item each.

    A watchdog replaces a worker that is stuck in an item for over `SLOW_S`; that worker then serves its lane
    alone and ends with it. A lane known as slow gets a thread of its own at once. So the threads are as many as
    `num_threads` and the sends that are slow at the moment.
    """

    def __init__(self, num_threads: int = NUM_THREADS, name: str = "voxcpm-send") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._work_cond = threading.Condition(self._lock)  # a lane is ready, or the pool closes
        self._watch_cond = threading.Condition(self._lock)  # a worker is busy, or the last one has gone
        self._ready: deque[Lane[Any]] = deque()
        self._workers: set[_Worker] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = False
        for _ in range(num_threads):
            self._add_worker()
        self._watchdog = threading.Thread(target=self._watch, name=f"{name}-watchdog", daemon=True)
        self._watchdog.start()

    def lane(self, handle: Callable[[T], None]) -> Lane[T]:
        """A new queue; it holds no thread and needs no closing."""
        return Lane(self, handle)

    def schedule(self, lane: Lane[Any]) -> None:
        """For `Lane` alone: it has items and no thread works on it."""
        with self._lock:
            self._ready.append(lane)
            self._work_cond.notify()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Work off what is queued, then end all threads; False if some were still stuck after `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            self._closing = True
            self._work_cond.notify_all()
        while True:
            with self._lock:
                threads = [*self._threads, self._watchdog]
            alive = [thread for thread in threads if thread.is_alive()]
            left_s = deadline_s - time.monotonic()
            if not alive or left_s <= 0:
                return not alive
            alive[0].join(min(left_s, SLOW_S))

    def _add_worker(self) -> None:
        worker = _Worker()
        self._workers.add(worker)
        self._start(self._work, worker)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        def run() -> None:
            try:
                target(*args)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self, worker: _Worker) -> None:
        while True:
            with self._lock:
                self._work_cond.wait_for(lambda: self._ready or self._closing)
                if not self._ready:
                    self._workers.discard(worker)
                    self._watch_cond.notify()
                    return
                lane = self._ready.popleft()
                if lane.is_slow:
                    self._start(self._drain, lane)
                    continue
                worker.busy_since_s = time.monotonic()
                self._watch_cond.notify()
            more = lane.run_one()
            with self._lock:
                worker.busy_since_s = None
                if more and not worker.is_detached:
                    self._ready.append(lane)
                    self._work_cond.notify()
            if worker.is_detached:
                if more:
                    self._drain(lane)
                return

    def _drain(self, lane: Lane[Any]) -> None:
        while lane.run_one():
            pass

    def _watch(self) -> None:
        while True:
            with self._lock:
                self._watch_cond.wait_for(lambda: not self._workers or any(w.busy_since_s for w in self._workers))
                if not self._workers:
                    return
                now_s = time.monotonic()
                for worker in [w for w in self._workers if w.busy_since_s and now_s - w.busy_since_s > SLOW_S]:
                    worker.is_detached = True
                    self._workers.discard(worker)
                    self._add_worker()
            time.sleep(SLOW_S / 2)
