"""The codes that models without weights give, over gRPC, /generate and /generate_stream."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.server.clips import clip
from tests.server.instance import GENEROUS_S, Instance
from tests.server.streams import LONG
from tests.server.wire import generate, generate_stream, infer_input
from tests.server_process import ADMIN_TOKEN, MAX_BLOCKING
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
REQUEST_ID = "who-asks"
Refusal = tuple[int | None, str]  # the HTTP status, None over gRPC, and the error's text


def over_grpc(server: TritonServer, model: str, inputs: dict[str, Any]) -> Refusal:
    tensors = [infer_input(name, value) for name, value in inputs.items()]
    with (
        grpcclient.InferenceServerClient(server.grpc_url) as client,
        pytest.raises(InferenceServerException) as refused,
    ):
        client.infer(model, tensors, request_id=REQUEST_ID)
    return None, refused.value.message()


def over_generate(server: TritonServer, model: str, inputs: dict[str, Any]) -> Refusal:
    status, answer = generate(server, {**inputs, "id": REQUEST_ID}, model)
    return status, answer["error"]


def over_generate_stream(server: TritonServer, model: str, inputs: dict[str, Any]) -> Refusal:
    status, (event,) = generate_stream(server, {**inputs, "id": REQUEST_ID}, model)
    return status, event["error"]


PROTOCOLS: dict[str, tuple[Callable[[TritonServer, str, dict[str, Any]], Refusal], int | None]] = {
    "grpc": (over_grpc, None), "generate": (over_generate, 400), "generate_stream": (over_generate_stream, 400),
}
protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
SILENCE = base64.b64encode(bytes(1000)).decode()
CONTROL: dict[str, dict[str, Any]] = {
    "FORBIDDEN": {"op": "queue", "token": "wrong"},
    "UNKNOWN_VOICE": {"op": "remove_voice", "token": ADMIN_TOKEN, "name": "nobody"},
    "UNKNOWN_LORA": {"op": "unregister_lora", "token": ADMIN_TOKEN, "name": "nobody"},
    "INVALID_PARAMETER": {"op": "status", "of": "everything"},
    "INVALID_AUDIO": {"op": "add_voice", "token": ADMIN_TOKEN, "reference_audio_base64": SILENCE},
    "CONFLICTING_INPUTS": {"op": "add_voice", "token": ADMIN_TOKEN, "prompt_audio_base64": SILENCE},
    "NOT_READY": {"op": "status", "version": "9"},
}


def check(protocol: str, server: TritonServer, model: str, inputs: dict[str, Any], code: str) -> str:
    """The message of a refusal with that code."""
    send, status = PROTOCOLS[protocol]
    found_status, message = send(server, model, inputs)
    assert found_status == status
    assert re.fullmatch(rf"\[{code}\] request {REQUEST_ID}: [^/\n]+", message), message
    return message


@protocols
@pytest.mark.parametrize("code", CONTROL)
def test_control(triton_server: TritonServer, code: str, protocol: str):
    check(protocol, triton_server, "voxcpm_control", {"request": json.dumps(CONTROL[code])}, code)


@protocols
def test_a_name_that_exists(triton_server: TritonServer, protocol: str):
    voice = {"token": ADMIN_TOKEN, "name": f"taken over {protocol}"}
    sound = base64.b64encode(clip()).decode()
    request = {"request": json.dumps({"op": "add_voice", "reference_audio_base64": sound, **voice})}
    assert generate(triton_server, request, "voxcpm_control")[0] == 200
    try:
        check(protocol, triton_server, "voxcpm_control", request, "ALREADY_EXISTS")
    finally:
        generate(triton_server, {"request": json.dumps({"op": "remove_voice", **voice})}, "voxcpm_control")


@contextmanager
def full(instance: Instance) -> Iterator[None]:
    """As many requests inside `voxcpm_blocking` as it admits."""
    request = {**LONG, "encoding": "base64", "id": "inside"}
    with ThreadPoolExecutor(MAX_BLOCKING) as callers:
        inside = [callers.submit(generate, instance.server, request, "voxcpm_blocking") for _ in range(MAX_BLOCKING)]
        instance.wait_for(running=MAX_BLOCKING)
        try:
            yield
        finally:
            assert instance.cancel("inside") == MAX_BLOCKING
            assert all("[CANCELLED]" in each.result(GENEROUS_S)[1]["error"] for each in inside)


def test_no_room(triton_server: TritonServer):
    with Instance(triton_server) as instance:
        instance.wait_until_idle()
        with full(instance):
            for protocol in PROTOCOLS:
                message = check(protocol, triton_server, "voxcpm_blocking", {"target_text": "Hello."}, "OVERLOADED")
                assert message.endswith(", retry after 1000 ms")
        instance.wait_until_idle()
