"""From the error texts of a server, and the statuses of gRPC, to exceptions."""

from __future__ import annotations

import re

from voxcpm_client.errors import (
    AlreadyExists,
    Cancelled,
    ConflictingInputs,
    ConnectionLost,
    DeadlineExceeded,
    Draining,
    Forbidden,
    InternalError,
    InvalidAudio,
    InvalidLatents,
    InvalidParameter,
    InvalidText,
    NotReady,
    Overloaded,
    QueueTimeout,
    ServerUnavailable,
    StubUnhealthy,
    TooLarge,
    UnknownLora,
    UnknownModel,
    UnknownVoice,
    VoxError,
)

URL_HINT = "url is the server's gRPC address, host:port, usually with port 8001"

_BY_CODE: dict[str, type[VoxError]] = {
    kind.code: kind
    for kind in (
        InvalidText, InvalidAudio, InvalidLatents, InvalidParameter, ConflictingInputs, TooLarge, UnknownVoice,
        UnknownLora, AlreadyExists, Forbidden, Overloaded, Draining, NotReady, Cancelled, DeadlineExceeded,
        InternalError,
    )
}  # fmt: skip

# What Triton writes before a message, its own or a model's. Texts count only behind these: a message may quote others.
_TRITON_PREFIXES = re.compile(
    r"(?:in ensemble '[^']*', |\[request id: .*?\] "
    r"|Failed to process the request\(s\) for model instance '[^']*', message: )*"
)
_CODE = re.compile(r"\[([A-Z_]+)\] ")

_BY_TRITON_TEXT: tuple[tuple[re.Pattern[str], type[VoxError]], ...] = (
    (re.compile(r"Exceeds maximum queue size"), Overloaded),
    (re.compile(r"Request timeout expired"), QueueTimeout),
    (re.compile(r"Request for unknown model: .* is not found"), UnknownModel),
    (re.compile(r"Request for unknown model: "), NotReady),
    (re.compile(r"Stub process .* is not healthy"), StubUnhealthy),
)


def error_from_message(message: str) -> VoxError:
    """The exception for an error text of the server: `[CODE] ...`, or one of Triton's own that are known."""
    prefixes = _TRITON_PREFIXES.match(message)
    start = prefixes.end() if prefixes else 0
    found = _CODE.match(message, start)
    if found:
        code = found.group(1)
        return _BY_CODE.get(code, VoxError)(message, code)
    for text, kind in _BY_TRITON_TEXT:
        if text.match(message, start):
            return kind(message)
    return VoxError(message)


def error_from_answer(status: str, details: str, url: str) -> VoxError:
    """The exception for a call with one answer that ended with the status named `status`, also of the server's own."""
    error = error_from_message(details)
    return error if error.code else error_from_status(status, details, url, num_chunks=0)


def error_from_status(status: str, details: str, url: str, num_chunks: int) -> VoxError:
    """The exception for a gRPC call that ended with the status named `status` after `num_chunks` chunks."""
    if status == "UNAVAILABLE" and num_chunks:
        return ConnectionLost(f"the connection to {url} was lost after {num_chunks} chunks: {details}")
    if status == "UNAVAILABLE":
        return ServerUnavailable(f"no answer from a Triton server at {url}: {details}; {URL_HINT}")
    if status == "DEADLINE_EXCEEDED":
        return DeadlineExceeded("the request was not done within timeout_s")
    if status == "CANCELLED":
        return Cancelled("the stream was cancelled")
    return error_from_message(details or status)
