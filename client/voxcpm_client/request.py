"""From Python values to one ModelInferRequest. Only what was given becomes an input."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from voxcpm_client.ensemble import options_for
from voxcpm_client.errors import InvalidParameter, InvalidText

WHOLE_FORMATS = ("flac", "opus")  # the server gives them as one answer only


def build_request(model: str, text: str, request_id: str, options: Mapping[str, Any]) -> service_pb2.ModelInferRequest:
    """The request for one utterance.

    Raises TypeError for an unknown option and for a text that is no str, InvalidParameter for a value that its type
    cannot hold or that the ensemble does not take, InvalidText for a text with lone surrogates and OSError for an audio
    file that cannot be read.
    """
    _utf8("request_id", request_id)
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    add_text(request, "target_text", text)
    for name in options:
        if name not in _ADDERS:
            raise TypeError(f"unknown option {name!r}; known: {', '.join(sorted(_ADDERS))}")
    for name, value in options_for(model, options).items():
        if value is not None:
            _ADDERS[name](request, name, value)
    if options.get("format") in WHOLE_FORMATS or options.get("retry_badcase"):
        _bool(request, "stream", False)
    return request


def limit_queue_time(request: service_pb2.ModelInferRequest, timeout_s: float | None) -> None:
    """Bound the time in Triton's queue; None leaves the server's own bound."""
    if timeout_s is not None:
        request.parameters["timeout"].int64_param = max(1, round(timeout_s * 1e6))


def _add(request: service_pb2.ModelInferRequest, name: str, datatype: str, shape: list[int], raw: bytes) -> None:
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(raw)


def _element(data: bytes) -> bytes:
    """One element of a BYTES tensor on the wire: its length, then itself."""
    return struct.pack("<I", len(data)) + data


def add_text(request: service_pb2.ModelInferRequest, name: str, value: str) -> None:
    """An input with one text. Raises TypeError for a value that is no str, and InvalidText or InvalidParameter."""
    _add(request, name, "BYTES", [1], _element(_utf8(name, value)))


def _utf8(name: str, value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected str, got {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError:
        kind = InvalidText if name.endswith("_text") else InvalidParameter
        raise kind(f"{name} is not valid Unicode") from None


def add_audio(request: service_pb2.ModelInferRequest, name: str, value: bytes | str | os.PathLike[str]) -> None:
    """An input with the bytes of an audio file. Raises OSError for one that cannot be read."""
    _add(request, name, "BYTES", [1], _element(audio_bytes(value)))


def audio_bytes(value: bytes | str | os.PathLike[str]) -> bytes:
    """The bytes of an audio file, given as they are or as its path. Raises OSError."""
    if isinstance(value, bytes):
        return value
    with open(value, "rb") as file:
        return file.read()


def _add_latents(request: service_pb2.ModelInferRequest, name: str, value: Any) -> None:
    array = np.ascontiguousarray(value, dtype="<f4")
    _add(request, name, "FP32", list(array.shape), array.tobytes())


def _scalar(datatype: str, layout: str) -> Callable[[service_pb2.ModelInferRequest, str, Any], None]:
    def add(request: service_pb2.ModelInferRequest, name: str, value: Any) -> None:
        try:
            raw = struct.pack(layout, value)
        except (struct.error, OverflowError):
            raise InvalidParameter(f"{name}: {value!r} does not fit {datatype}") from None
        _add(request, name, datatype, [1], raw)

    return add


_int32 = _scalar("INT32", "<i")
_float32 = _scalar("FP32", "<f")
_bool = _scalar("BOOL", "<?")

_ADDERS: dict[str, Callable[[service_pb2.ModelInferRequest, str, Any], None]] = {
    "format": add_text,
    "bitrate": _int32,
    "sample_rate": _int32,
    "deadline_ms": _int32,
    "prompt_audio": add_audio,
    "prompt_text": add_text,
    "prompt_latents": _add_latents,
    "reference_audio": add_audio,
    "reference_latents": _add_latents,
    "voice": add_text,
    "lora": add_text,
    "cfg_value": _float32,
    "temperature": _float32,
    "inference_timesteps": _int32,
    "min_length": _int32,
    "max_length": _int32,
    "length_cap": _bool,
    "ignore_stop": _bool,
    "retry_badcase": _bool,
    "normalize": _bool,
    "seed": _scalar("INT64", "<q"),
    "return_latents": _bool,
}
