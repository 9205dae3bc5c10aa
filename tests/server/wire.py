"""Requests as clients put them on the wire: tritonclient's gRPC stream and plain HTTP."""

from __future__ import annotations

import http.client
import json
import queue
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from voxcpm_client.server import TritonServer

TIMEOUT_S = 120.0
NUMPY_TYPES = {
    "cfg_value": np.float32, "temperature": np.float32, "prompt_latents": np.float32, "reference_latents": np.float32,
    "inference_timesteps": np.int32, "min_length": np.int32, "max_length": np.int32,
    "bitrate": np.int32, "sample_rate": np.int32, "deadline_ms": np.int32,
    "seed": np.int64, "length_cap": np.bool_, "ignore_stop": np.bool_, "stream": np.bool_, "return_latents": np.bool_,
    "normalize": np.bool_, "retry_badcase": np.bool_,
}
TRITON_TYPES = {np.float32: "FP32", np.int32: "INT32", np.int64: "INT64", np.bool_: "BOOL"}


@dataclass
class Answer:
    """Everything that came for one request."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    num_finals: int = 0

    @property
    def audio(self) -> bytes:
        return b"".join(chunk["audio"] for chunk in self.chunks)

    @property
    def latents(self) -> np.ndarray:
        return np.concatenate([chunk["latents"] for chunk in self.chunks])

    @property
    def code(self) -> str:
        """The code of the one error."""
        (error,) = self.errors
        return error[error.index("[") + 1 : error.index("]")]


class GrpcCall:
    """One request on a stream of its own."""

    def __init__(
        self, server: TritonServer, inputs: dict[str, Any], *, outputs: tuple[str, ...] = (), request_id: str = "",
        model: str = "voxcpm", version: str = "", parameters: dict[str, Any] | None = None,
        priority: int = 0, timeout_us: int | None = None,
    ) -> None:
        self.answer = Answer()
        self._events: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()
        self._client = grpcclient.InferenceServerClient(server.grpc_url)
        self._client.start_stream(lambda result, error: self._events.put((result, error)))
        self._client.async_stream_infer(
            model,
            [infer_input(name, value) for name, value in inputs.items()],
            outputs=[grpcclient.InferRequestedOutput(name) for name in outputs] or None,
            model_version=version,
            request_id=request_id,
            enable_empty_final_response=True,
            parameters=parameters,
            priority=priority,
            timeout=timeout_us,
        )

    def next_event(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Take in one response; False when the request has ended."""
        result, error = self._events.get(timeout=timeout_s)
        if error is not None:
            self.answer.errors.append(str(error))
            return False
        response = result.get_response()
        if response.outputs:
            values = {output.name: result.as_numpy(output.name) for output in response.outputs}
            self.answer.chunks.append({k: v if k == "latents" else v.tolist()[0] for k, v in values.items()})
        if response.parameters["triton_final_response"].bool_param:
            self.answer.num_finals += 1
            return False
        return True

    def finish(self) -> Answer:
        """Read to the end, and make sure that nothing follows it."""
        while self.next_event():
            pass
        self._client.stop_stream()
        assert self._events.empty(), "a response after the end"
        self._client.close()
        return self.answer

    def cancel(self) -> None:
        self._client.stop_stream(cancel_requests=True)
        self._client.close()


def call(server: TritonServer, text: str | bytes = "Hello world", **inputs: Any) -> Answer:
    """Send one request over gRPC and read it to its end."""
    return GrpcCall(server, {"target_text": text, **inputs}).finish()


def generate(
    server: TritonServer, body: dict[str, Any] | bytes, model: str = "voxcpm"
) -> tuple[int, dict[str, Any]]:
    """POST /generate: status and JSON answer."""
    status, data = _post(server, f"{model}/generate", body)
    return status, json.loads(data)


def generate_stream(
    server: TritonServer, body: dict[str, Any], model: str = "voxcpm"
) -> tuple[int, list[dict[str, Any]]]:
    """POST /generate_stream: status and the events; an error of Triton's own is the one event."""
    status, data = _post(server, f"{model}/generate_stream", body)
    lines = [line for line in data.decode().split("\n") if line.startswith("data:")]
    return status, [json.loads(line.removeprefix("data:")) for line in lines or [data.decode()]]


def _post(server: TritonServer, model_and_verb: str, body: dict[str, Any] | bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.http_url, timeout=TIMEOUT_S)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", f"/v2/models/{model_and_verb}", data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def infer_values(name: str, value: Any) -> tuple[str, np.ndarray]:
    """An input's Triton type and its tensor."""
    kind = NUMPY_TYPES.get(name)
    if kind is None:
        return "BYTES", np.array([value.encode() if isinstance(value, str) else value], dtype=np.object_)
    return TRITON_TYPES[kind], np.atleast_1d(np.asarray(value, dtype=kind))


def infer_input(name: str, value: Any) -> grpcclient.InferInput:
    triton_type, values = infer_values(name, value)
    tensor = grpcclient.InferInput(name, list(values.shape), triton_type)
    tensor.set_data_from_numpy(values)
    return tensor
