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
    """The model is loading, restarting or not loaded."""

    code = "NOT_READY"


class Cancelled(VoxError):
    code = "CANCELLED"


class DeadlineExceeded(VoxError):
    """The time for the whole request is over, wherever that was noticed."""

    code = "DEADLINE_EXCEEDED"


class InternalError(VoxError):
    """A fault inside the server."""

    code = "INTERNAL"


class ServerUnavailable(VoxError):
    """No server answers at the address, or the connection broke."""

    code = "UNAVAILABLE"


class InvalidUrl(VoxError, ValueError):
    """An address that cannot be a server's gRPC address."""

    code = "INVALID_URL"


class GapTimeout(VoxError):
    """A stream that had begun fell silent for longer than `gap_timeout_s`."""

    code = "GAP_TIMEOUT"


class StreamBroken(VoxError):
    """Chunks out of order, or a stream that ended before its last chunk."""

    code = "STREAM_BROKEN"


URL_HINT = "url is the server's gRPC address, host:port, usually with port 8001"

_BY_CODE: dict[str, type[VoxError]] = {
    kind.code: kind
    for kind in (
        InvalidText, InvalidAudio, InvalidLatents, InvalidParameter, ConflictingInputs, TooLarge, UnknownVoice,
        UnknownLora, AlreadyExists, Forbidden, Overloaded, Draining, NotReady, Cancelled, DeadlineExceeded,
        InternalError,
    )
}  # fmt: skip

_BY_TRITON_TEXT: tuple[tuple[str, type[VoxError]], ...] = (
    ("Exceeds maximum queue size", Overloaded),
    ("Request timeout expired", DeadlineExceeded),
    ("Request for unknown model", NotReady),
    ("has no available versions", NotReady),
)


def error_from_message(message: str) -> VoxError:
    """The exception for an error text of the server: `[CODE] ...`, or one of Triton's own that are known."""
    found = re.search(r"\[([A-Z_]+)\] ", message)
    if found:
        code = found.group(1)
        return _BY_CODE.get(code, VoxError)(message, code)
    for text, kind in _BY_TRITON_TEXT:
        if text in message:
            return kind(message)
    return VoxError(message)


def error_from_status(status: str, details: str, url: str, num_chunks: int) -> VoxError:
    """The exception for a gRPC call that ended with the status named `status` after `num_chunks` chunks."""
    if status == "UNAVAILABLE" and num_chunks:
        return ServerUnavailable(f"the connection to {url} was lost after {num_chunks} chunks: {details}")
    if status == "UNAVAILABLE":
        return ServerUnavailable(f"no answer from a Triton server at {url}: {details}; {URL_HINT}")
    if status == "DEADLINE_EXCEEDED":
        return DeadlineExceeded("the request was not done within timeout_s")
    if status == "CANCELLED":
        return Cancelled("the stream was cancelled")
    return error_from_message(details or status)
