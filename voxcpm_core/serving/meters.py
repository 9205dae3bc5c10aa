"""Who is told how a request goes on: its part in the metrics, and its spans where it is traced."""

from __future__ import annotations

from typing import Protocol

from voxcpm_core.errors import ErrorCode


class Meter(Protocol):
    """One thread at a time tells it, but for `admitted`, which the engine may even tell of one that has just ended."""

    def admitted(self) -> None:
        """It has a slot; a further attempt gets its own."""

    def sent(self, audio_s: float, is_streamed: bool) -> None:
        """A chunk has left, with so much audio in it."""

    def finished(self, reason: str) -> None:
        """All of it was sent."""

    def failed(self, code: ErrorCode) -> None:
        """It ended with an error."""


class Meters:
    """Several as one."""

    def __init__(self, *meters: Meter) -> None:
        self._meters = meters

    def admitted(self) -> None:
        for meter in self._meters:
            meter.admitted()

    def sent(self, audio_s: float, is_streamed: bool) -> None:
        for meter in self._meters:
            meter.sent(audio_s, is_streamed)

    def finished(self, reason: str) -> None:
        for meter in self._meters:
            meter.finished(reason)

    def failed(self, code: ErrorCode) -> None:
        for meter in self._meters:
            meter.failed(code)
