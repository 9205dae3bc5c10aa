"""The outputs of one response, read from the wire.

tritonclient's `InferResult` takes several times as long for the same, which a program with many streams feels.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from voxcpm_client.errors import StreamBroken
from voxcpm_client.types import FloatArray

INT32, INT64, BOOL = struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<?")
_LENGTH_BYTES = 4  # before an element of a BYTES tensor


class Outputs:
    """Values by the names of the outputs. Raises StreamBroken for one that is missing or is not one element."""

    def __init__(self, response: service_pb2.ModelInferResponse) -> None:
        self._response = response
        names = [output.name for output in response.outputs]
        self._raw: dict[str, bytes] = dict(zip(names, response.raw_output_contents, strict=False))

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def number(self, name: str, layout: struct.Struct) -> Any:
        """An output of one element that `layout` (INT32, ...) describes."""
        raw = self._raw.get(name, b"")
        if len(raw) != layout.size:
            raise _not_one_element(name)
        return layout.unpack(raw)[0]

    def data(self, name: str) -> bytes:
        """An output of one element of type BYTES."""
        raw = self._raw.get(name, b"")
        if len(raw) < _LENGTH_BYTES or len(raw) - _LENGTH_BYTES != int.from_bytes(raw[:_LENGTH_BYTES], "little"):
            raise _not_one_element(name)
        return raw[_LENGTH_BYTES:]

    def matrix(self, name: str) -> FloatArray | None:
        """An output of type FP32, read-only, in its shape; None where the response does not have it."""
        raw = self._raw.get(name)
        if raw is None:
            return None
        (shape,) = (output.shape for output in self._response.outputs if output.name == name)
        return np.frombuffer(raw, "<f4").reshape(shape)


def _not_one_element(name: str) -> StreamBroken:
    return StreamBroken(f"the server's output {name!r} is missing or is not one element")
