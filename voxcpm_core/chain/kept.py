"""What a model of the ensemble keeps of its streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Protocol

from voxcpm_core.serving.responses import NamedTensor
from voxcpm_core.serving.tensors import InputTensors

SILENT_S = 2.0  # without a chunk; then an engine may know that no more will come
FORGOTTEN_S = 600.0  # likewise, where no engine can say so; far longer than any send may block


class Part(Protocol):
    """One stream's state. `take` gives the outputs for a chunk's inputs, None while there is nothing to tell."""

    def take(self, tensors: InputTensors, is_last: bool) -> list[NamedTensor] | None: ...


class Kept:
    """One stream."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.next_index = 0
        self.used_s = time.monotonic()


class KeptStreams:
    """By stream id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, Kept] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def begin(self, stream_id: str, part: Part) -> None:
        with self._lock:
            self._streams[stream_id] = Kept(part)

    def get(self, stream_id: str) -> Kept | None:
        return self._streams.get(stream_id)

    def silent(self, during_s: float = SILENT_S) -> list[str]:
        """Ids of the streams of which no chunk has come for so long."""
        oldest_s = time.monotonic() - during_s
        with self._lock:
            return [stream_id for stream_id, kept in self._streams.items() if kept.used_s < oldest_s]

    def forget(self, stream_ids: Collection[str]) -> None:
        """Those that are there."""
        with self._lock:
            for stream_id in stream_ids:
                self._streams.pop(stream_id, None)
