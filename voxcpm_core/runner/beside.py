"""Work on the device beside that of the current stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Beside:
    """On CUDA a stream of its own; elsewhere there is nothing but the order of calls."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._latest: torch.cuda.Event | None = None  # the end of what was launched beside last
        self._awaited: torch.cuda.Event | None = None  # what comes beside waits for that

    @property
    def is_idle(self) -> bool:
        return self._latest is None or self._latest.query()

    @contextmanager
    def launched(self) -> Iterator[None]:
        """What is launched inside comes after all that was launched so, and all before `follow` was called."""
        if self._stream is None:
            yield
            return
        if self._awaited is not None:
            self._stream.wait_event(self._awaited)
        with torch.cuda.stream(self._stream):
            try:
                yield
            finally:
                self._latest = self._stream.record_event()

    def join(self) -> None:
        """Let the current stream's further work wait for what was launched beside."""
        if self._latest is not None:
            torch.cuda.current_stream().wait_event(self._latest)

    def follow(self) -> None:
        """Let what will be launched beside wait for what the current stream has by now."""
        if self._stream is not None:
            self._awaited = torch.cuda.current_stream().record_event()
