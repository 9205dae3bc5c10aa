"""What parent and worker tell each other. Pickled: both are the same package, and nobody else has the socket."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import CheckpointError, ConfigError, ErrorCode, StartupError
from voxcpm_core.types import Admitted, EngineRequest, EngineStats, FinishReason, FloatArray, PadSide
from voxcpm_core.worker.placement import Placement
from voxcpm_core.worker.ring import RingGeometry

STARTUP_ERRORS = {kind.__name__: kind for kind in (StartupError, ConfigError, CheckpointError)}


@dataclass(frozen=True)
class Start:
    """To the worker, first of all."""

    config: EngineConfig
    placement: Placement
    geometry: RingGeometry
    ring_fd: int


@dataclass(frozen=True)
class Submit:
    stream_id: int
    request: EngineRequest


@dataclass(frozen=True)
class Cancel:
    stream_id: int


@dataclass(frozen=True)
class Encode:
    encode_id: int
    waveform: FloatArray
    pad: PadSide


@dataclass(frozen=True)
class Ready:
    """From the worker: it is warm."""

    stats: EngineStats
    warning: str  # "" or what is to be logged about its device


@dataclass(frozen=True)
class NotStarted:
    """From the worker: it cannot start, and why."""

    kind: str  # a key of STARTUP_ERRORS
    message: str


@dataclass(frozen=True)
class Encoded:
    encode_id: int
    latents: FloatArray | None
    error: tuple[ErrorCode, str] | None


@dataclass(frozen=True)
class StepInRing:
    """A `StepOutput` whose arrays lie in a slot of the ring; places are in floats."""

    stream_ids: list[int]
    indices: list[int]
    reasons: list[FinishReason | None]
    latents_rows: list[int]
    audio_rows: list[int | None]
    slot: int
    latents_at: int
    num_latents_rows: int
    audio_at: int
    num_audio_rows: int


@dataclass(frozen=True)
class Turn:
    """From the worker: all that happened in one turn of its loop. The slots of its steps are now the parent's."""

    events: list[StepInRing | tuple[int, Admitted] | tuple[int, ErrorCode, str]]  # the last is a stream that failed
    stats: EngineStats


def send(connection: Connection, message: object) -> None:
    """Write one message; one thread at a time. Raises OSError when the other side has gone."""
    connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def receive(connection: Connection) -> Any:
    """Block for the next message. Raises EOFError or OSError when the other side has gone."""
    return pickle.loads(connection.recv_bytes())


def connection_from(fd: int) -> Connection:
    os.set_inheritable(fd, False)
    return Connection(fd)
