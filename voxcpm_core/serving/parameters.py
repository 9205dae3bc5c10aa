"""Request parameters: a misspelt input over /generate becomes one, and must not pass unseen."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Set

from voxcpm_core.errors import ErrorCode, RequestError, shown

TRITON_NAMES = frozenset({"id", "priority", "timeout", "headers", "binary_data_output"})
TRITON_PREFIXES = ("sequence_", "triton_")


def allowed_names(setting: str) -> frozenset[str]:
    """The names in the setting `allowed_parameters`, a comma-separated list."""
    return frozenset(name.strip() for name in setting.split(",") if name.strip())


def utf8_or_none(read: Callable[[], str]) -> str | None:
    """What `read` returns; None where Triton holds bytes that are not UTF-8, which its backend refuses to decode."""
    try:
        return read()
    except UnicodeDecodeError:
        return None


def request_id_of(given_id: str | None) -> str:
    """What a request is called: as its client did, else by a new name."""
    return given_id or f"vx-{secrets.token_hex(8)}"


def reject_unknown(parameters: str, allowed: Set[str]) -> None:
    """`parameters` is the JSON object that Triton gives; raises INVALID_PARAMETER naming the first unknown one."""
    names = json.loads(parameters) if parameters else {}
    unknown = sorted(
        name for name in names
        if name not in TRITON_NAMES and name not in allowed and not name.startswith(TRITON_PREFIXES)
    )
    if unknown:
        raise RequestError(ErrorCode.INVALID_PARAMETER, f"unknown parameter {shown(unknown[0])}")
