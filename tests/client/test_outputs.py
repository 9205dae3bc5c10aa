"""Outputs of a response as they come over the wire."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tritonclient.grpc import InferResult, service_pb2

from voxcpm_client.errors import StreamBroken
from voxcpm_client.outputs import BOOL, INT32, INT64, Outputs

LATENTS = np.arange(6, dtype="<f4").reshape(2, 3)


def element(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def response(**raw: tuple[str, list[int], bytes]) -> service_pb2.ModelInferResponse:
    made = service_pb2.ModelInferResponse()
    for name, (datatype, shape, data) in raw.items():
        made.outputs.add(name=name, datatype=datatype, shape=shape)
        made.raw_output_contents.append(data)
    return made


def test_the_same_values_as_tritonclient_s() -> None:
    made = response(
        audio=("BYTES", [1], element(b"ab\x00\x00")), num_samples=("INT32", [1], struct.pack("<i", -7)),
        seed=("INT64", [1], struct.pack("<q", -(2**40))), is_last=("BOOL", [1], b"\x01"),
        latents=("FP32", [2, 3], LATENTS.tobytes()),
    )  # fmt: skip
    outputs, expected = Outputs(made), InferResult(made)
    assert outputs.data("audio") == expected.as_numpy("audio")[0] == b"ab\x00\x00"
    assert outputs.number("num_samples", INT32) == expected.as_numpy("num_samples")[0] == -7
    assert outputs.number("seed", INT64) == expected.as_numpy("seed")[0]
    assert outputs.number("is_last", BOOL) is True
    np.testing.assert_array_equal(outputs.matrix("latents"), expected.as_numpy("latents"))
    assert Outputs(response()).matrix("latents") is None


@pytest.mark.parametrize("raw", [b"", b"\x02\x00\x00", element(b"a") + element(b"b"), element(b"abc")[:-1]])
def test_data_that_is_not_one_element(raw: bytes) -> None:
    outputs = Outputs(response(audio=("BYTES", [1], raw)))
    with pytest.raises(StreamBroken, match="'audio' is missing or is not one element"):
        outputs.data("audio")


def test_numbers_that_are_not_one_element() -> None:
    outputs = Outputs(response(seed=("INT64", [2], bytes(16))))
    for name, layout in (("seed", INT64), ("seed", INT32), ("num_samples", INT32)):
        with pytest.raises(StreamBroken, match=name):
            outputs.number(name, layout)
