"""Work on the device beside that of an engine's own stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


class Beside:
    """On CUDA a stream of its own; elsewhere there is nothing but the order of calls.

    Beside what: the stream that is current when this is made, on which the engine launches all else.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._latest: torch.cuda.Event | None = None  # the end of what was launched beside last
        if device.type == "cuda":
            self._engine, self._stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
            # Recorded again and again: who waits for an event waits for its latest record by then, or for nothing.
            self._latest, self._awaited = torch.cuda.Event(), torch.cuda.Event()

    @property
    def is_idle(self) -> bool:
        return self._latest is None or self._latest.query()

    def launch(self, work: Callable[[], Result]) -> Result:
        """What `work` launches comes after all that was launched so, and all before `follow` was called."""
        if self._stream is None:
            return work()
        self._stream.wait_event(self._awaited)
        with self._stream:
            try:
                return work()
            finally:
                self._stream.record_event(self._latest)

    def join(self, stream: torch.cuda.Stream | None = None) -> None:
        """Let the further work of the engine, or of another stream, wait for what was launched beside."""
        if self._latest is not None:
            (stream or self._engine).wait_event(self._latest)

    def follow(self) -> None:
        """Let what will be launched beside wait for what the engine has launched by now."""
        if self._stream is not None:
            self._engine.record_event(self._awaited)
