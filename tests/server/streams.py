"""Callers who read when they like and leave when they like: raw gRPC and HTTP streams."""

from __future__ import annotations

import json
import socket
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import serialize_byte_tensor

from tests.server.wire import TIMEOUT_S, infer_values
from voxcpm_client.server import TritonServer

LONG = {"target_text": "A very long story", "ignore_stop": True, "length_cap": False, "inference_timesteps": 2}


def same_sound(audio: bytes, other: bytes) -> bool:
    """Whether two pcm_s16le answers agree: a crowd sums in another order, which can turn the last bit of a sample."""
    if len(audio) != len(other):
        return False
    samples, others = (np.frombuffer(each, "<i2").astype(int) for each in (audio, other))
    return int(np.abs(samples - others).max()) <= 1


class GrpcStream:
    """One request on a call of its own, from which nothing is read unless `next_chunk` is called.

    Tritonclient reads by itself, and leaves a thread behind for every stream that it cancels.
    """

    def __init__(
        self, server: TritonServer, inputs: dict[str, Any], request_id: str = "", priority: int = 0,
        timeout_us: int = 0, model: str = "voxcpm",
    ) -> None:
        request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        if priority:
            request.parameters["priority"].uint64_param = priority
        if timeout_us:
            request.parameters["timeout"].int64_param = timeout_us
        for name, value in inputs.items():
            triton_type, values = infer_values(name, value)
            request.inputs.add(name=name, datatype=triton_type, shape=values.shape)
            is_bytes = triton_type == "BYTES"
            request.raw_input_contents.append(serialize_byte_tensor(values).item() if is_bytes else values.tobytes())
        self._channel = grpc.insecure_channel(server.grpc_url, [("grpc.max_receive_message_length", -1)])
        stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._call = stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S)
        self.errors: list[str] = []
        self.num_chunks = 0
        self.audio = b""

    def next_chunk(self) -> bool:
        """Take in one response; False for an error and for FINAL. Raises grpc.RpcError when the call has ended."""
        response = next(self._call)
        if response.error_message:
            self.errors.append(response.error_message)
            return False
        outputs = response.infer_response.outputs
        if not outputs:
            return False
        position = [output.name for output in outputs].index("audio")
        self.audio += response.infer_response.raw_output_contents[position][4:]
        self.num_chunks += 1
        return True

    def finish(self) -> None:
        """Read to the end, and make sure that nothing follows it."""
        while self.next_chunk():
            pass
        assert next(self._call, None) is None, "a response after the end"
        self._channel.close()

    def cancel(self) -> None:
        self._call.cancel()

    def leave(self) -> None:
        """Cancel, as a caller who is not interested any more."""
        self.cancel()
        self._channel.close()


class HttpStream:
    """One request on /generate_stream over a socket with a small buffer."""

    def __init__(self, server: TritonServer, inputs: dict[str, Any], verb: str = "generate_stream") -> None:
        host, port = server.http_url.split(":")
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect((host, int(port)))
        body = json.dumps({"encoding": "base64", **inputs}).encode()
        head = f"POST /v2/models/voxcpm/{verb} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)
        self._lines = self._socket.makefile("rb")

    def next_event(self) -> dict[str, Any] | None:
        """The next server-sent event, None at the end of the answer."""
        while line := self._lines.readline():
            if line.startswith(b"data: "):
                event: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                return event
            if line == b"0\r\n":
                return None
        return None

    def read_byte(self) -> bytes:
        return self._lines.read(1)

    def leave(self) -> None:
        """Hang up, with what is unread thrown away."""
        self._lines.close()
        self._socket.close()
