"""Every error a caller can meet, with its stable code and the Triton code it maps to."""

from __future__ import annotations

from enum import Enum

from voxcpm_core.paths import printable


class ErrorCode(str, Enum):
    """Codes of the public contract; the value is what stands between the brackets of a message."""

    INVALID_TEXT = "INVALID_TEXT"
    INVALID_AUDIO = "INVALID_AUDIO"
    INVALID_LATENTS = "INVALID_LATENTS"
    INVALID_PARAMETER = "INVALID_PARAMETER"
    CONFLICTING_INPUTS = "CONFLICTING_INPUTS"
    TOO_LARGE = "TOO_LARGE"
    UNKNOWN_VOICE = "UNKNOWN_VOICE"
    UNKNOWN_LORA = "UNKNOWN_LORA"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    FORBIDDEN = "FORBIDDEN"
    OVERLOADED = "OVERLOADED"
    DRAINING = "DRAINING"
    NOT_READY = "NOT_READY"
    CANCELLED = "CANCELLED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    INTERNAL = "INTERNAL"

    @property
    def triton_code(self) -> str:
        """Name of the member of Triton's `TritonError` that carries this code."""
        return _TRITON_CODES[self]


_TRITON_CODES = {
    ErrorCode.INVALID_TEXT: "INVALID_ARG",
    ErrorCode.INVALID_AUDIO: "INVALID_ARG",
    ErrorCode.INVALID_LATENTS: "INVALID_ARG",
    ErrorCode.INVALID_PARAMETER: "INVALID_ARG",
    ErrorCode.CONFLICTING_INPUTS: "INVALID_ARG",
    ErrorCode.TOO_LARGE: "INVALID_ARG",
    ErrorCode.UNKNOWN_VOICE: "NOT_FOUND",
    ErrorCode.UNKNOWN_LORA: "NOT_FOUND",
    ErrorCode.ALREADY_EXISTS: "ALREADY_EXISTS",
    ErrorCode.FORBIDDEN: "INVALID_ARG",
    ErrorCode.OVERLOADED: "UNAVAILABLE",
    ErrorCode.DRAINING: "UNAVAILABLE",
    ErrorCode.NOT_READY: "UNAVAILABLE",
    ErrorCode.CANCELLED: "CANCELLED",
    ErrorCode.DEADLINE_EXCEEDED: "CANCELLED",
    ErrorCode.INTERNAL: "INTERNAL",
}

MAX_SHOWN_CHARS = 40


def shown(value: object) -> str:
    """`repr` of a rejected value, at most `MAX_SHOWN_CHARS` characters, for an error message."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"


class RequestError(Exception):
    """A request that ends with an error. The message never holds user text, paths or tracebacks."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    def wire(self, request_id: str) -> str:
        """The message as clients see it: `[CODE] request ID: message`."""
        return f"[{self.code.value}] request {request_id}: {self}"


def invalid_parameter(message: str) -> RequestError:
    """The error of a parameter that is out of range or unknown."""
    return RequestError(ErrorCode.INVALID_PARAMETER, message)


RETRY_MS = 1000


def not_ready(reason: str, retry_ms: int = RETRY_MS) -> RequestError:
    """The error of a request that comes while nothing can be generated; ends with when to try again."""
    return RequestError(ErrorCode.NOT_READY, f"{reason}, retry after {retry_ms} ms")


def draining(reason: str) -> RequestError:
    """The error of a request that a server leaves to others since it is to end; ends with when to try again."""
    return RequestError(ErrorCode.DRAINING, f"{reason}, retry after {RETRY_MS} ms")


def shutting_down() -> RequestError:
    """The error of whoever is there, or comes, when the engine is closed."""
    return not_ready("the engine is shutting down")


class StartupError(ValueError):
    """The engine cannot be started; the message says what to change and may name files."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class ConfigError(StartupError):
    """A setting or config.json that cannot be used; names the key, the value and what is allowed."""


class CheckpointError(StartupError):
    """A checkpoint that cannot be loaded; names the file and the tensor or key."""
