"""What a door and its engine's instance tell each other. Pickled: both are the same package and the same user's."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from voxcpm_core.serving.parameters import utf8_or_none
from voxcpm_core.serving.responses import NamedTensor
from voxcpm_core.tracing.context import trace_context
from voxcpm_core.wire import Wire


@dataclass(frozen=True)
class Asked:
    """From a door: a request, as Triton handed it over."""

    number: int  # of this door's connection
    request_id: str | None  # None: not valid UTF-8
    parameters: str | None  # likewise
    inputs: list[NamedTensor]
    output_names: list[str]
    trace_context: str

    @classmethod
    def of(cls, number: int, request: Any, request_id: str | None) -> Asked:
        """Of a request of Triton's, whose tensors are copied when this is sent."""
        return cls(
            number=number,
            request_id=request_id,
            parameters=utf8_or_none(request.parameters),
            inputs=[(tensor.name(), tensor.as_numpy()) for tensor in request.inputs()],
            output_names=list(request.requested_output_names()),
            trace_context=trace_context(request),
        )


@dataclass(frozen=True)
class Gone:
    """From a door: the caller has cancelled."""

    number: int


@dataclass(frozen=True)
class Taken:
    """To a door: the request is past the gate, or answered; the next one may come."""

    number: int


@dataclass(frozen=True)
class Answered:
    """To a door: one response."""

    number: int
    tensors: list[NamedTensor] | None
    error: tuple[str, str] | None  # message and name of Triton's code
    is_final: bool


def send(wire: Wire, message: object) -> None:
    """One thread at a time. Raises OSError when the other side has gone."""
    wire.send(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def receive(wire: Wire) -> Any:
    """Block for the next message. Raises EOFError or OSError when the other side has gone."""
    return pickle.loads(wire.receive())
