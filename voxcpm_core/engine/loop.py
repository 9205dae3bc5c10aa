"""The engine's loop in a thread of its own."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from voxcpm_core.engine.core import EngineCore
from voxcpm_core.errors import RequestError, shutting_down
from voxcpm_core.faults import internal_error
from voxcpm_core.lora.facts import LoraFacts, no_loras
from voxcpm_core.types import EngineEvent, EngineRequest, FloatArray, PadSide

log = logging.getLogger(__name__)

Command = Callable[[], None]


class EngineLoop:
    """The engine's thread: runs commands and steps, and gives all events of a turn to `deliver`."""

    def __init__(self, core: EngineCore, deliver: Callable[[list[EngineEvent]], None]) -> None:
        self.core = core
        self._deliver = deliver
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="voxcpm-engine", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return not self._closed

    def add(self, stream_id: int, request: EngineRequest) -> bool:
        """Queue a validated request under an id of its own; False when the engine is shut. Waits for nobody."""
        if self.core.keeps_voices:
            request.digest_audio()  # in the caller's thread, not between two steps
        return self._put(lambda: self._add(stream_id, request))

    def cancel(self, stream_id: int) -> None:
        """Ask for a stream to end with CANCELLED; nothing happens when it has ended already."""
        self._put(lambda: self.core.cancel(stream_id))

    def encode(self, waveform: FloatArray, pad: PadSide) -> Future[FloatArray]:
        """Latents [frames, feat_dim] of mono audio [samples] at the encoder's rate; made between steps."""
        future: Future[FloatArray] = Future()

        def run() -> None:
            if self._closed:
                future.set_exception(shutting_down())
                return
            self.core.encode(waveform, pad).add_done_callback(lambda encoded: _pass_on(encoded, future))

        if not self._put(run):
            future.set_exception(shutting_down())
        return future

    def check_lora(self, path: str) -> Future[LoraFacts]:
        """What an adapter's folder, below the folder of all adapters, holds; fails with RequestError."""
        if self.core.loras is None:
            future: Future[LoraFacts] = Future()
            future.set_exception(no_loras())
            return future
        return self.core.loras.check(path)

    def close(self) -> None:
        """End all streams with NOT_READY and stop the thread."""
        with self._lock:
            self._closed = True
            self._commands.put(None)
        self._thread.join()

    def _add(self, stream_id: int, request: EngineRequest) -> None:
        loading = self.core.add(stream_id, request)
        if loading is not None:
            loading.add_done_callback(lambda _: self._put(lambda: self.core.enter(stream_id)))

    def _put(self, command: Command) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._commands.put(command)
            return True

    def _run(self) -> None:
        try:
            while self._take_commands():
                if self.core.has_work:
                    self.core.step()
                self._deliver(self.core.take_events())
        except Exception as error:  # a fault of the loop itself: what it holds can no longer be trusted
            self._end_all(internal_error(error, "the engine", log.error))
        else:
            self._end_all(shutting_down())

    def _end_all(self, error: RequestError) -> None:
        """Refuse whoever comes, and answer everybody who is there or just came in."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                command = self._commands.get_nowait()
                if command is not None:
                    command()
        self.core.fail_all(error)
        self._deliver(self.core.take_events())

    def _take_commands(self) -> bool:
        """Run what callers ask for until there is a step to make, and time for it. False: close was asked for."""
        wait_s = self.core.slack_s() if self.core.has_work else None
        while True:
            if wait_s and self._commands.empty():
                self.core.admit()
                wait_s = self.core.slack_s()
            try:
                command = self._commands.get(block=wait_s != 0, timeout=wait_s)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            wait_s = self.core.slack_s()


def _pass_on(ended: Future[FloatArray], future: Future[FloatArray]) -> None:
    error = ended.exception()
    if error is None:
        future.set_result(ended.result())
    else:
        future.set_exception(error)
