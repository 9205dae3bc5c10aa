"""Samples of what a server's processes hold while requests go on."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType

from tests.soak.processes import holdings, shared_memory_kib

FIGURES = ("rss_kib", "pss_kib", "threads", "descriptors")
Sample = dict[str, int]  # "stub threads": 21


class Watch:
    """A context manager that samples all the while; `progress` tells the share of the work that is done."""

    def __init__(
        self, root_pid: int, shm_prefix: str, progress: Callable[[], float], period_s: float = 0.5
    ) -> None:
        self.samples: list[tuple[float, Sample]] = []
        self.pids: dict[str, set[int]] = defaultdict(set)
        self._root_pid = root_pid
        self._shm_prefix = shm_prefix
        self._progress = progress
        self._period_s = period_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._period_s):
            self.samples.append((self._progress(), self._sample()))

    def _sample(self) -> Sample:
        sample: Sample = defaultdict(int)
        for holding in holdings(self._root_pid):
            self.pids[holding.role].add(holding.pid)
            sample[f"{holding.role} processes"] += 1
            for figure in FIGURES:
                sample[f"{holding.role} {figure}"] += getattr(holding, figure)
        sample["/dev/shm kib"] = shared_memory_kib(self._shm_prefix)
        return dict(sample)
