"""What parent and worker tell each other. As Python's own bytes: both are the same package and alone on the socket."""

from __future__ import annotations

import marshal
import pickle
from dataclasses import dataclass
from typing import Any, NamedTuple

from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.errors import CheckpointError, ConfigError, ErrorCode, StartupError
from voxcpm_core.types import EngineRequest, EngineStats, FloatArray, PadSide
from voxcpm_core.wire import Wire
from voxcpm_core.worker.placement import Placement
from voxcpm_core.worker.ring import RingGeometry

STARTUP_ERRORS = {kind.__name__: kind for kind in (StartupError, ConfigError, CheckpointError)}


@dataclass(frozen=True)
class Start:
    """To the worker, first of all."""

    config: EngineConfig
    model: ModelConfig  # as the parent knows it
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
class CheckLora:
    check_id: int
    path: str


@dataclass(frozen=True)
class Ready:
    """From the worker: it is warm."""

    stats: EngineStats
    warning: str  # "" or what is to be logged about its device
    gpu: str  # its UUID as NVML has it, or "cpu"


@dataclass(frozen=True)
class NotStarted:
    """From the worker: it cannot start, and why."""

    kind: str  # a key of STARTUP_ERRORS
    message: str


@dataclass(frozen=True)
class Answer:
    """To an `Encode` or a `CheckLora`, with its id."""

    question_id: int
    value: Any
    error: tuple[ErrorCode, str] | None


class StepInRing(NamedTuple):
    """A `StepOutput` whose arrays lie in a slot of the ring; places are in floats. Of plain values, for `marshal`."""

    stream_ids: list[int]
    indices: list[int]
    reasons: dict[int, str]  # by position: of streams that end with this patch
    latents_rows: list[int] | None  # None: 0, 1, 2, ... as in nearly every step
    audio_rows: list[int | None] | None  # likewise
    slot: int
    latents_at: int
    num_latents_rows: int
    audio_at: int
    num_audio_rows: int


class Turn(NamedTuple):
    """From the worker: all that happened in one turn of its loop. The slots of its steps are now the parent's.

    An event is a `StepInRing`, (stream id,) of a stream that was admitted, or (stream id, code, message) of a failed
    one; each as a plain tuple.
    """

    events: list[tuple[Any, ...]]
    stats: tuple[int, ...]  # of EngineStats


_TURN, _OTHER = b"t", b"o"


def send(wire: Wire, message: object) -> None:
    """Write one message; one thread at a time. Raises OSError when the other side has gone."""
    if isinstance(message, Turn):  # one a step: marshal takes a fraction of the time that pickle does
        wire.send(_TURN + marshal.dumps(tuple(message)))
    else:
        wire.send(_OTHER + pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def receive(wire: Wire) -> Any:
    """Block for the next message. Raises EOFError or OSError when the other side has gone."""
    data = memoryview(wire.receive())
    return Turn(*marshal.loads(data[1:])) if data[:1] == _TURN else pickle.loads(data[1:])
