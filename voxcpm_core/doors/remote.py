"""A request that came through a door, as the adapter takes Triton's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from voxcpm_core.doors.messages import Answered, Asked
from voxcpm_core.serving.responses import NamedTensor


class RemoteResponse(NamedTuple):
    tensors: list[NamedTensor] | None
    error: tuple[str, str] | None


class RemoteResponses:
    """The `Responses` of remote requests."""

    final_flag = 1

    def data(self, tensors: Iterable[NamedTensor]) -> RemoteResponse:
        return RemoteResponse(list(tensors), None)

    def error(self, message: str, triton_code: str) -> RemoteResponse:
        return RemoteResponse(None, (message, triton_code))


class RemoteTensor:
    """An input."""

    def __init__(self, name: str, array: NDArray[Any]) -> None:
        self._name = name
        self._array = array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> NDArray[Any]:
        return self._array


class RemoteRequest:
    """Request, trace and response sender in one. `deliver` takes each answer, whose order is that of the calls."""

    def __init__(self, asked: Asked, deliver: Callable[[Answered], None]) -> None:
        self._asked = asked
        self._deliver = deliver
        self._is_gone = False
        self._when_ended: Callable[[], None] = lambda: None

    def when_ended(self, call: Callable[[], None]) -> None:
        """`call` is called once, with the last answer."""
        self._when_ended = call

    def leave(self) -> None:
        """The caller has gone."""
        self._is_gone = True

    def request_id(self) -> str | None:
        return self._asked.request_id

    def parameters(self) -> str | None:
        return self._asked.parameters

    def inputs(self) -> list[RemoteTensor]:
        return [RemoteTensor(name, array) for name, array in self._asked.inputs]

    def requested_output_names(self) -> list[str]:
        return self._asked.output_names

    def trace(self) -> RemoteRequest:
        return self

    def get_context(self) -> str:
        return self._asked.trace_context

    def get_response_sender(self) -> RemoteRequest:
        return self

    def is_cancelled(self) -> bool:
        return self._is_gone

    def send(self, response: RemoteResponse | None = None, flags: int = 0) -> None:
        tensors, error = response or RemoteResponse(None, None)
        is_final = flags == RemoteResponses.final_flag
        self._deliver(Answered(self._asked.number, tensors, error, is_final))
        if is_final:
            self._when_ended()
