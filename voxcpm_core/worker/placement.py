"""Which GPU a worker sees: only its own, so that nothing it does can reach another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Placement:
    """Where Triton put the instance: its kind ("GPU", "CPU", "MODEL") and device id."""

    kind: str
    device_id: str


@dataclass(frozen=True)
class WorkerDevice:
    """The same in the worker's terms: what is configured, the placement, and the environment."""

    configured: str
    placement: Placement
    environ: dict[str, str]


def place(configured: str, placement: Placement, environ: Mapping[str, str]) -> WorkerDevice:
    """Make the one GPU of a worker the only one that it sees; `configured` ("cuda:1", "cpu") wins over Triton.

    What names no visible GPU is left as it is: the worker says what is wrong with it.
    """
    match = re.fullmatch(r"cuda(?::(\d+))?", configured)
    if match:
        index = int(match[1] or 0)
    elif not configured and placement.kind == "GPU":
        index = int(placement.device_id)
    else:
        return WorkerDevice(configured, placement, dict(environ))
    visible = [entry.strip() for entry in environ[VISIBLE].split(",")] if environ.get(VISIBLE) else None
    if visible is not None and index >= len(visible):
        return WorkerDevice(configured, placement, dict(environ))
    only = str(index) if visible is None else visible[index]
    return WorkerDevice("cuda:0" if match else "", Placement(placement.kind, "0"), {**environ, VISIBLE: only})
