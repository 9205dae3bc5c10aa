"""Work on the device beside that of the current stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Beside:
    """On CUDA a stream of its own; elsewhere there is nothing but the order of calls."""

    def __init__(self, device: torch.device) -> None:
        self._stream = None
        self.latest: torch.cuda.Event | None = None  # the end of what was launched beside last
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
            # Recorded again and again: who waits for an event waits for its latest record by then, or for nothing.
            self.latest, self._awaited = torch.cuda.Event(), torch.cuda.Event()

    @property
    def is_idle(self) -> bool:
        return self.latest is None or self.latest.query()

    @contextmanager
    def launched(self) -> Iterator[None]:
        """What is launched inside comes after all that was launched so, and all before `follow` was called."""
        if self._stream is None:
            yield
            return
        self._stream.wait_event(self._awaited)
        with torch.cuda.stream(self._stream):
            try:
                yield
            finally:
                self._stream.record_event(self.latest)

    def join(self) -> None:
        """Let the current stream's further work wait for what was launched beside."""
        if self.latest is not None:
            torch.cuda.current_stream().wait_event(self.latest)

    def follow(self) -> None:
        """Let what will be launched beside wait for what the current stream has by now."""
        if self._stream is not None:
            torch.cuda.current_stream().record_event(self._awaited)
