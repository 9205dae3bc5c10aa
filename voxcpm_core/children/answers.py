"""How a child's answer travels: a result, or the error that its caller is to get."""

from __future__ import annotations

from voxcpm_core.errors import ErrorCode, RequestError

_RESULT, _REFUSAL = b"+", b"-"


def pack_result(result: bytes) -> bytes:
    return _RESULT + result


def pack_refusal(error: RequestError) -> bytes:
    return _REFUSAL + f"{error.code.value} {error}".encode()


def unpack(answer: bytes) -> memoryview:
    """The result; raises the RequestError that the child raised."""
    body = memoryview(answer)[1:]
    if answer[:1] == _REFUSAL:
        code, message = bytes(body).decode().split(" ", 1)
        raise RequestError(ErrorCode(code), message)
    return body
