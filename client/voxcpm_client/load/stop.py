"""Ending a load early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any


class Stop:
    """Cancels what runs in an event loop. `set` may be called from any thread, a signal's handler, and beforehand."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a handler may run within the thread that holds it
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self.is_set = False

    def set(self) -> None:
        with self._lock:
            self.is_set = True
            if self._running is not None:
                loop, task = self._running
                loop.call_soon_threadsafe(task.cancel)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a loop of its own, to its end or until this is set. Raises what it raises."""
        asyncio.run(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        with self._lock:
            self._running = (asyncio.get_running_loop(), task)
            if self.is_set:
                task.cancel()
        await asyncio.wait([task])
        with self._lock:
            self._running = None
        if not task.cancelled():
            task.result()
