"""What a caller of the client can meet: one exception class for each code of the server's contract."""

from __future__ import annotations

import re


class VoxError(Exception):
    """A request that failed. `code` is the server's, or one of this library's; "" for an unmapped Triton error."""

    code = ""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    @property
    def retry_after_ms(self) -> int | None:
        """When the server asks to try again, or None when it does not say."""
        found = re.search(r"retry after (\d+) ms", str(self))
        return int(found.group(1)) if found else None


class InvalidRequest(VoxError):
    """The request itself is wrong; sending it again cannot help."""


class InvalidText(InvalidRequest):
    code = "INVALID_TEXT"


class InvalidAudio(InvalidRequest):
    code = "INVALID_AUDIO"


class InvalidLatents(InvalidRequest):
    code = "INVALID_LATENTS"


class InvalidParameter(InvalidRequest):
    code = "INVALID_PARAMETER"


class ConflictingInputs(InvalidRequest):
    code = "CONFLICTING_INPUTS"


class TooLarge(InvalidRequest):
    code = "TOO_LARGE"


class UnknownVoice(InvalidRequest):
    code = "UNKNOWN_VOICE"


class UnknownLora(InvalidRequest):
    code = "UNKNOWN_LORA"


class AlreadyExists(InvalidRequest):
    code = "ALREADY_EXISTS"


class Forbidden(InvalidRequest):
    code = "FORBIDDEN"


class Overloaded(VoxError):
    """No room in a queue: the server's own, or Triton's (`Exceeds maximum queue size`)."""

    code = "OVERLOADED"


class Draining(VoxError):
    code = "DRAINING"


class NotReady(VoxError):
    """The model is loading, restarting or unloaded."""

    code = "NOT_READY"


class UnknownModel(NotReady):
    """No model of that name lies in the server's repository."""

    code = "UNKNOWN_MODEL"


class Cancelled(VoxError):
    code = "CANCELLED"


class DeadlineExceeded(VoxError):
    """The time for the whole request is over, wherever that was noticed."""

    code = "DEADLINE_EXCEEDED"


class QueueTimeout(DeadlineExceeded):
    """The request's time was over while it still waited in Triton's queue."""

    code = "QUEUE_TIMEOUT"


class InternalError(VoxError):
    """A fault inside the server."""

    code = "INTERNAL"


class StubUnhealthy(InternalError):
    """The server's Python process has died; Triton does not start it again, so the server has to be restarted."""

    code = "STUB_UNHEALTHY"


class ServerUnavailable(VoxError):
    """No server answers at the address."""

    code = "UNAVAILABLE"


class ConnectionLost(ServerUnavailable):
    """The connection broke after chunks had come."""

    code = "CONNECTION_LOST"


class InvalidUrl(VoxError, ValueError):
    """An address that cannot be a server's gRPC address."""

    code = "INVALID_URL"


class GapTimeout(VoxError):
    """A stream that had begun fell silent for longer than `gap_timeout_s`."""

    code = "GAP_TIMEOUT"


class StreamBroken(VoxError):
    """Chunks out of order, or a stream that ended before its last chunk."""

    code = "STREAM_BROKEN"


class NoPlayer(VoxError):
    """Nothing here can play sound, or what should play it failed; the message says what helps."""

    code = "NO_PLAYER"
