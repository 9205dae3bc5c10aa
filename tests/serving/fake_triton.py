"""A stand-in for Triton's Python backend module that also checks its rules: see `FakeSender`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.serving.fake_metrics import FakeMetrics

FINAL = 1
OUTPUTS = (
    "audio", "chunk_index", "num_samples", "sample_rate", "request_id", "is_last", "finish_reason", "seed", "latents",
)


class Tensor:
    def __init__(self, name: str, values: np.ndarray) -> None:
        self._name, self._values = name, values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._values


class TritonError:
    INTERNAL = "INTERNAL"
    INVALID_ARG = "INVALID_ARG"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    UNAVAILABLE = "UNAVAILABLE"
    CANCELLED = "CANCELLED"

    def __init__(self, message: str, code: str) -> None:
        self.message, self.code = message, code


@dataclass
class InferenceResponse:
    output_tensors: list[Tensor]
    error: TritonError | None = None

    def outputs(self) -> dict[str, Any]:
        """Values by name: scalars as Python values, latents as an array."""
        values = {tensor.name(): tensor.as_numpy() for tensor in self.output_tensors}
        return {name: value if name == "latents" else value.tolist()[0] for name, value in values.items()}


class FakeLogger:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log_info = self.log_warn = self.log_error = self.lines.append


class FakeBackend:
    """What `import triton_python_backend_utils` gives inside the stub."""

    Tensor = Tensor
    InferenceResponse = InferenceResponse
    TritonError = TritonError
    TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL

    def __init__(self, metrics: FakeMetrics | None = None) -> None:
        self.Logger = FakeLogger()
        self.MetricFamily = (metrics or FakeMetrics()).kind()


class FakeSender:
    """Records what is sent, and what would kill or confuse a real server, in `violations`."""

    def __init__(
        self, delay_s: Callable[[], float] = lambda: 0.0, fails_at: int | None = None, is_unary: bool = False
    ) -> None:
        self.responses: list[InferenceResponse] = []
        self.violations: list[str] = []
        self.num_finals = 0
        self.num_polls = 0
        self.gone = threading.Event()
        self.final = threading.Event()
        self._lock = threading.Lock()
        self._sending = self._polling = 0
        self._final_begun = False
        self._delay_s = delay_s
        self._fails_at = fails_at
        self._is_unary = is_unary  # of a model that is not decoupled: its one response comes with FINAL

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        with self._lock:
            if self._final_begun:
                self.violations.append("send after FINAL")
            if self._sending:
                self.violations.append("two sends at once")
            if flags == FINAL and self._polling:
                self.violations.append("FINAL during is_cancelled")
            has_data = response is not None and response.error is None
            if flags == FINAL and has_data != self._is_unary and (response is None or has_data):
                self.violations.append("FINAL without data" if self._is_unary else "FINAL with data")
            self._sending += 1
            self._final_begun = flags == FINAL
        time.sleep(self._delay_s())
        with self._lock:
            self._sending -= 1
            if response is not None:
                self.responses.append(response)
            if flags == FINAL:
                self.num_finals += 1
                self.final.set()
            elif len(self.responses) == self._fails_at:
                raise RuntimeError("the pipe is broken: SECRET")

    def is_cancelled(self) -> bool:
        with self._lock:
            if self._final_begun:
                self.violations.append("is_cancelled during or after FINAL")
            self._polling += 1
            self.num_polls += 1
        time.sleep(0)
        with self._lock:
            self._polling -= 1
        return self.gone.is_set()

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [response.outputs() for response in self.responses if response.error is None]

    @property
    def errors(self) -> list[TritonError]:
        return [response.error for response in self.responses if response.error is not None]


@dataclass
class FakeRequest:
    """An inference request; `inputs_by_name` holds numpy arrays."""

    inputs_by_name: dict[str, np.ndarray]
    id: str = "r1"
    output_names: Iterable[str] = OUTPUTS
    parameter_values: dict[str, Any] = field(default_factory=dict)
    sender: FakeSender = field(default_factory=FakeSender)

    def request_id(self) -> str:
        return self.id

    def inputs(self) -> list[Tensor]:
        return [Tensor(name, values) for name, values in self.inputs_by_name.items()]

    def parameters(self) -> str:
        return json.dumps(self.parameter_values) if self.parameter_values else ""

    def requested_output_names(self) -> list[str]:
        return list(self.output_names)

    def get_response_sender(self) -> FakeSender:
        return self.sender


def text(value: str | bytes) -> np.ndarray:
    """A BYTES [1] tensor."""
    return np.array([value.encode() if isinstance(value, str) else value], dtype=np.object_)
