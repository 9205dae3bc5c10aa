"""The workers of a pool: started in parallel, each request on the least loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from voxcpm_core.api.settings import PoolSettings
from voxcpm_core.checkpoint.locate import locate
from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.errors import ConfigError
from voxcpm_core.handle import EngineHandle
from voxcpm_core.threads import in_thread
from voxcpm_core.types import Admitted, EngineRequest, EngineStats, Failed, FloatArray, StreamEvent
from voxcpm_core.worker import start_worker

THREAD_NAME = "voxcpm-pool"


@dataclass(frozen=True)
class Chunk:
    """One patch as callers get it; the array is theirs."""

    audio: FloatArray  # [samples_per_patch]
    is_last: bool


@dataclass
class _Place:
    """One request in flight on a worker."""

    index: int
    is_taken: bool = True


class Workers:
    """Started engines of the same model; thread-safe."""

    def __init__(self, handles: Sequence[EngineHandle]) -> None:
        self._handles = tuple(handles)
        self._loads = [0] * len(self._handles)  # requests in flight
        self._next = 0  # where a tie is given to first
        self._lock = threading.Lock()

    @property
    def any(self) -> EngineHandle:
        """For what all have in common: model, settings, tokenizer."""
        return self._handles[0]

    @contextmanager
    def chosen(self) -> Iterator[EngineHandle]:
        """The worker with the fewest requests in flight, counted as one more while the context lasts."""
        place = self._take()
        try:
            yield self._handles[place.index]
        finally:
            self._give_back(place)

    @contextmanager
    def stream(self, request: EngineRequest, sink: Callable[[Chunk | Failed], None]) -> Iterator[None]:
        """A request for audio in the chosen worker; leaving the context by an exception cancels it.

        `sink` is called from a thread of the worker's. The request counts until its last chunk was made, however
        long a slow consumer takes to read it; and of what such a one has yet to read only its own audio is kept.
        """
        place = self._take()

        def take(event: StreamEvent) -> None:
            if isinstance(event, Admitted):
                return
            if isinstance(event, Failed) or event.finish_reason is not None:
                self._give_back(place)
            if isinstance(event, Failed):
                sink(event)
            else:
                assert event.audio is not None
                sink(Chunk(event.audio.copy(), event.finish_reason is not None))

        handle = self._handles[place.index]
        stream_id = handle.submit(request, take)
        try:
            yield
        except BaseException:
            handle.cancel(stream_id)
            raise
        finally:
            self._give_back(place)

    def stats(self) -> tuple[EngineStats, ...]:
        return tuple(handle.stats() for handle in self._handles)

    def close(self) -> None:
        wait([in_thread(handle.close, THREAD_NAME) for handle in self._handles])

    def _take(self) -> _Place:
        """A worker that is being started again is chosen only when all are; it then refuses with NOT_READY."""
        count = len(self._handles)
        with self._lock:
            ready = [index for index, handle in enumerate(self._handles) if handle.is_ready] or range(count)
            index = min(ready, key=lambda i: (self._loads[i], (i - self._next) % count))
            self._next = (index + 1) % count
            self._loads[index] += 1
        return _Place(index)

    def _give_back(self, place: _Place) -> None:
        with self._lock:
            self._loads[place.index] -= place.is_taken
            place.is_taken = False


def start_workers(settings: PoolSettings) -> Workers:
    """Start one worker per device, all at once, and wait until they are warm.

    When one does not start its StartupError is raised at once, and the others are stopped as soon as they have started.
    """
    engine = replace(settings.engine, model=str(locate(settings.engine.model)))
    starts = [in_thread(partial(_start_worker, engine, device), THREAD_NAME) for device in settings.devices]
    ended, _ = wait(starts, return_when=FIRST_EXCEPTION)
    error = next(filter(None, (start.exception() for start in ended)), None)
    if error is not None:
        for start in starts:
            start.add_done_callback(_stop)
        raise error
    return Workers([start.result() for start in starts])


def _start_worker(engine: EngineConfig, device: str) -> EngineHandle:
    try:
        return start_worker(engine, device)
    except ConfigError as error:
        if not str(error).startswith("device:"):
            raise
        # What the worker says of its device is in its own terms: it sees no other GPU than the one meant for it.
        raise ConfigError(f'devices: no worker on {device!r} ({error}); devices=["cpu"] runs on the CPU') from None


def _stop(start: Future[EngineHandle]) -> None:
    if start.exception() is None:
        start.result().close()
