"""Odd requests over gRPC: tensors of any type, shape and content, parameters, outputs and ids."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

import grpc
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2, service_pb2_grpc

from voxcpm_client.server import TritonServer

ANSWER_TIMEOUT_S = 60.0
BYTES_OF = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
    "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8, "BYTES": 0,
}
MOST_MS = 1500  # deadline_ms is never dropped nor above this: every case ends
LATENTS = ("prompt_latents", "reference_latents")
PARAMETERS = (
    "priority", "timeout", "sequence_id", "sequence_start", "sequence_end", "headers", "binary_data_output",
    "triton_enable_empty_final_response", "shared_memory_region", "shared_memory_byte_size", "binary_data_size",
)
EXCLUDED_OUTPUT_PARAMETER = "classification"  # on `audio`, Triton 2.51 dies of it before the model sees the request

short_text = st.text(max_size=12)
any_bytes = st.binary(max_size=48)
MOST_ELEMENTS = 128  # sent of a tensor, whatever its shape says


@st.composite
def requests(draw: st.DrawFn, types: Mapping[str, str]) -> service_pb2.ModelInferRequest:
    """A good request for the inputs and their `types`, made odd in a few ways; most of them reach the model."""
    request = service_pb2.ModelInferRequest(model_name="voxcpm", id=draw(short_text | st.text(max_size=400)))
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    if draw(rarely(20)):
        request.model_version = draw(st.sampled_from(["1", "2", "x"]) | short_text)
    tensors = {"target_text": ("BYTES", [1], _strings([b"Hello."])), "max_length": ("INT32", [1], struct.pack("<i", 2))}
    if draw(rarely(15)):
        del tensors["target_text"]
    names = st.sampled_from([name for name in sorted(types) if name != "deadline_ms"])
    for name in draw(st.lists(names, max_size=4, unique=True)):
        tensors[name] = draw(_tensors(name, types[name]))
    if draw(rarely(15)):
        tensors[draw(short_text)] = draw(_tensors("", "BYTES"))
    for name, tensor in tensors.items():
        _add(request, name, *tensor)
    deadline_ms = draw(st.just(MOST_MS) | st.integers(-5, MOST_MS))
    _add(request, "deadline_ms", "INT32", [1], struct.pack("<i", deadline_ms))
    if draw(rarely(20)):
        _add(request, "max_length", "INT32", [1], struct.pack("<i", 2))
    if draw(rarely(8)):
        _set(request.parameters[draw(st.sampled_from(PARAMETERS) | short_text)], draw(_values))
    if draw(rarely(8)):
        _add_outputs(draw, request)
    return request


def rarely(one_in: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([False] * (one_in - 1) + [True])


def send(server: TritonServer, request: service_pb2.ModelInferRequest) -> list[str]:
    """All errors of the answer. Raises TimeoutError when it does not end, AssertionError when there is none."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            answers = list(stub.ModelStreamInfer(iter([request]), timeout=ANSWER_TIMEOUT_S))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError from None
            return [error.details()]
    assert answers
    finals = [each.infer_response.parameters["triton_final_response"].bool_param for each in answers]
    errors = [each.error_message for each in answers if each.error_message]
    assert errors or finals.count(True) == 1, "exactly one FINAL ends what is answered"
    return errors


_values = st.booleans() | st.integers(-(2**63), 2**63 - 1) | short_text | st.floats()


def _set(parameter: service_pb2.InferParameter, value: bool | int | str | float) -> None:
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    setattr(parameter, kinds[type(value)], value)


def _add_outputs(draw: st.DrawFn, request: service_pb2.ModelInferRequest) -> None:
    for name in draw(st.lists(st.sampled_from(["audio", "latents", "is_last", "seed"]), min_size=1, max_size=3)):
        output = request.outputs.add(name=draw(short_text) if draw(rarely(6)) else name)
        parameter = draw(st.sampled_from(PARAMETERS) | short_text)
        if parameter != EXCLUDED_OUTPUT_PARAMETER and draw(rarely(4)):
            _set(output.parameters[parameter], draw(_values))


@st.composite
def _tensors(draw: st.DrawFn, name: str, kind: str) -> tuple[str, list[int], bytes]:
    """Type, shape and content; each is as the model wants it in most cases."""
    if draw(rarely(20)):
        kind = draw(st.sampled_from(sorted(BYTES_OF)))
    shape = draw(_shapes(name))
    return kind, shape, draw(_contents(name, kind, min(math.prod(max(size, 0) for size in shape), MOST_ELEMENTS)))


def _shapes(name: str) -> st.SearchStrategy[list[int]]:
    if name in LATENTS:
        # Excluded: negative and overflowing sizes, of which the stub of Triton 2.51 dies before the model sees them.
        return st.tuples(st.integers(0, 8), st.sampled_from([4, 8, 16, 64]) | st.integers(0, 1 << 20)).map(list)
    odd = st.lists(st.integers(0, 3) | st.integers(-(2**63), 2**63 - 1), max_size=4)
    return st.sampled_from([False] * 11 + [True]).flatmap(lambda is_odd: odd if is_odd else st.just([1]))


@st.composite
def _contents(draw: st.DrawFn, name: str, kind: str, count: int) -> bytes:
    if draw(rarely(25)):
        return draw(any_bytes)
    if kind == "BYTES":
        return _strings([draw(_texts(name)) for _ in range(count)])
    width = BYTES_OF[kind]
    if kind.startswith(("INT", "UINT")) and draw(st.booleans()):
        return b"".join(draw(st.integers(0, 40)).to_bytes(width, "little") for _ in range(count))
    if kind == "FP32" and draw(st.booleans()):
        return struct.pack(f"<{count}f", *(draw(st.floats(-1, 3, width=32)) for _ in range(count)))
    return draw(st.binary(min_size=width * count, max_size=width * count))


def _texts(name: str) -> st.SearchStrategy[bytes]:
    known = {"format": [b"mp3", b"wav", b"flac", b"opus"], "encoding": [b"base64", b"raw"], "prompt_text": [b"Hi."]}
    return any_bytes | short_text.map(str.encode) | st.sampled_from(known.get(name, [b""]))


def _strings(values: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def _add(request: service_pb2.ModelInferRequest, name: str, kind: str, shape: list[int], content: bytes) -> None:
    request.inputs.add(name=name, datatype=kind, shape=shape)
    request.raw_input_contents.append(content)
