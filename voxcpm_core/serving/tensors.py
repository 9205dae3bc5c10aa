"""Typed values out of a request's input tensors. Absent inputs are None; malformed ones are errors with a code."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voxcpm_core.errors import ErrorCode, RequestError, shown
from voxcpm_core.types import FloatArray


class InputTensors:
    """The inputs of one request by name. `tensors` are Triton's: `name()` and `as_numpy()`."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self._tensors = {tensor.name(): tensor for tensor in tensors}

    def has(self, name: str) -> bool:
        return name in self._tensors

    def array(self, name: str) -> NDArray[Any]:
        """As it came; raises KeyError where it has not."""
        values: NDArray[Any] = self._tensors[name].as_numpy()
        return values

    def boolean(self, name: str) -> bool | None:
        value = self._scalar(name, "b", ErrorCode.INVALID_PARAMETER)
        return None if value is None else bool(value)

    def integer(self, name: str) -> int | None:
        value = self._scalar(name, "iu", ErrorCode.INVALID_PARAMETER)
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        value = self._scalar(name, "f", ErrorCode.INVALID_PARAMETER)
        return None if value is None else float(value)

    def text(self, name: str, code: ErrorCode = ErrorCode.INVALID_TEXT) -> str | None:
        data = self.data(name, code)
        if data is None:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise RequestError(code, f"{name} is not valid UTF-8 at byte {error.start}") from None

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(name, ErrorCode.INVALID_PARAMETER)
        if value is not None and value not in allowed:
            wanted = ", ".join(allowed)
            raise RequestError(ErrorCode.INVALID_PARAMETER, f"{name}: expected one of {wanted}, got {shown(value)}")
        return value

    def data(self, name: str, code: ErrorCode) -> bytes | None:
        value = self._scalar(name, "O", code)
        if value is None or isinstance(value, bytes):
            return value
        raise RequestError(code, f"{name}: expected bytes, got {type(value).__name__}")

    def audio(self, name: str, is_base64: bool) -> bytes | None:
        """The bytes of an audio file, sent as they are or as base64 text (line breaks are allowed)."""
        data = self.data(name, ErrorCode.INVALID_AUDIO)
        return from_base64(name, data, ErrorCode.INVALID_AUDIO) if data is not None and is_base64 else data

    def latents(self, name: str) -> FloatArray | None:
        """A copy, [n, m] as sent; its width is the model's business."""
        if not self.has(name):
            return None
        values = self._tensors[name].as_numpy()
        if values.dtype != np.float32 or values.ndim != 2 or values.size == 0:
            found = f"{values.dtype} of shape {list(values.shape)}"
            raise RequestError(ErrorCode.INVALID_LATENTS, f"{name}: expected float32 [frames, feat_dim], got {found}")
        return np.array(values, dtype=np.float32)

    def _scalar(self, name: str, kinds: str, code: ErrorCode) -> Any:
        if not self.has(name):
            return None
        values = self._tensors[name].as_numpy()
        if values.dtype.kind not in kinds or values.size != 1:
            found = f"{values.dtype} of shape {list(values.shape)}"
            raise RequestError(code, f"{name}: expected one element, got {found}")
        return values.reshape(-1)[0]


def from_base64(name: str, text: bytes, code: ErrorCode) -> bytes:
    """What `text` stands for, line breaks allowed; raises RequestError with `code`."""
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error:
        raise RequestError(code, f"{name} is not valid base64") from None
