"""Messages on a local socket: a JSON object on a line, and behind it the bytes that JSON cannot hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

from voxcpm_core.errors import invalid_parameter

MAX_ATTACHED_BYTES = 1 << 27  # two minutes of audio in any form, and more than Triton lets through
_ATTACHED = "attached"  # name and number of bytes of each, in order


def packed(message: Mapping[str, Any], attached: Mapping[str, bytes]) -> bytes:
    """`attached` come back as fields of the message."""
    sizes = {_ATTACHED: {name: len(data) for name, data in attached.items()}} if attached else {}
    return json.dumps({**message, **sizes}).encode() + b"\n" + b"".join(attached.values())


def split(fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The fields that JSON can hold, and those that are bytes."""
    attached = {name: value for name, value in fields.items() if isinstance(value, bytes)}
    return {name: value for name, value in fields.items() if name not in attached}, attached


def read_attached(message: dict[str, Any], lines: BinaryIO) -> dict[str, bytes]:
    """What is behind the line that `message` was; raises INVALID_PARAMETER, after which nothing can be read any more.

    ConnectionError when the other side ends before.
    """
    sizes = message.pop(_ATTACHED, {})
    if not isinstance(sizes, dict) or not all(type(size) is int and size >= 0 for size in sizes.values()):
        raise invalid_parameter("attached: expected numbers of bytes by name")
    if sum(sizes.values()) > MAX_ATTACHED_BYTES:
        raise invalid_parameter(f"more than {MAX_ATTACHED_BYTES} bytes are attached")
    attached = {}
    for name, size in sizes.items():
        attached[name] = lines.read(size)
        if len(attached[name]) < size:
            raise ConnectionError("the other side has ended")
    return attached
