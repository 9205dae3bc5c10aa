"""A request to `voxcpm_control`: a JSON object with an `op` and its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voxcpm_core.control.instances import IDENTITY
from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, shown
from voxcpm_core.serving.tensors import from_base64

MAX_TEXT_CHARS = 100_000  # of a field; far above what any text may have
_SUFFIX, _NUMBER_SUFFIX = "_base64", "_ms"


@dataclass(frozen=True)
class ControlRequest:
    op: str
    named: Mapping[str, str | None]  # model, version and instance that are meant
    token: str | None
    fields: Mapping[str, str | bytes | int]  # of the operation; `x_base64` is `x`, as bytes, and `x_ms` a number


def parse(data: bytes, known: Mapping[str, frozenset[str]]) -> ControlRequest:
    """`known` are the fields of each operation. Raises INVALID_PARAMETER for anything else, naming it."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise invalid_parameter("request: expected a JSON object") from None
    if not isinstance(values, dict):
        raise invalid_parameter('request: expected a JSON object such as {"op": "status"}')
    op = values.pop("op", None)
    if not isinstance(op, str) or op not in known:
        raise invalid_parameter(f"op: expected one of {', '.join(sorted(known))}, got {shown(op)}")
    common = {name: values.pop(name, None) for name in (*IDENTITY, "token")}
    for name, value in common.items():
        if value is not None and not isinstance(value, str):
            raise invalid_parameter(f"{name}: expected a text")
    unknown = sorted(set(values) - known[op])
    if unknown:
        raise invalid_parameter(f"{op}: unknown field {shown(unknown[0])}")
    fields = dict(_field(name, value) for name, value in values.items() if value is not None)
    return ControlRequest(op, {name: common[name] for name in IDENTITY}, common["token"], fields)


def _field(name: str, value: Any) -> tuple[str, str | bytes | int]:
    if name.endswith(_NUMBER_SUFFIX):
        if type(value) is int:
            return name, value
        raise invalid_parameter(f"{name}: expected an integer, got {shown(value)}")
    if not name.endswith(_SUFFIX):
        if isinstance(value, str) and len(value) <= MAX_TEXT_CHARS:
            return name, value
        raise invalid_parameter(f"{name}: expected a text of at most {MAX_TEXT_CHARS} characters")
    code = ErrorCode.INVALID_AUDIO if "audio" in name else ErrorCode.INVALID_LATENTS
    if not isinstance(value, str) or not value.isascii():
        raise RequestError(code, f"{name} is not valid base64")
    return name.removesuffix(_SUFFIX), from_base64(name, value.encode(), code)
