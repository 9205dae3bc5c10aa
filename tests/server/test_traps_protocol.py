"""What Triton does to requests and answers on the way, and that the model holds its contract all the same."""

from __future__ import annotations

import http.client
import json
import re

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.server.clips import clip
from tests.server.instance import GENEROUS_S
from tests.server.lifecycle import wait_until
from tests.server.streams import same_sound
from tests.server.wire import GrpcCall, call, generate, generate_stream
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
ENDLESS = {"ignore_stop": True, "length_cap": False, "inference_timesteps": 2}


def ask(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_one_answer_calls_are_refused(triton_server: TritonServer):
    body = {"inputs": [{"name": "target_text", "shape": [1], "datatype": "BYTES", "data": ["Hi."]}]}
    status, _ = ask(triton_server.http_url, "POST", "/v2/models/voxcpm/infer", json.dumps(body).encode())
    assert status == 501
    with grpc.insecure_channel(triton_server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(service_pb2.ModelInferRequest(model_name="voxcpm"))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_generate_takes_exactly_one_response(triton_server: TritonServer):
    options = {"target_text": "Several chunks.", "max_length": 4, "min_length": 4, "encoding": "base64"}
    status, answer = generate(triton_server, options)
    assert status == 200
    assert "exactly 1 response" in answer["error"]
    status, answer = generate(triton_server, {**options, "stream": False})
    assert (status, "error" in answer) == (200, False)


def test_raw_audio_in_json_is_no_utf8(triton_server: TritonServer):
    options = {"target_text": "Raw.", "format": "mp3", "max_length": 3, "seed": 5, "stream": False}
    _, data = ask(triton_server.http_url, "POST", "/v2/models/voxcpm/generate", json.dumps(options).encode())
    with pytest.raises(UnicodeDecodeError):
        data.decode()
    found = json.loads(data.decode("latin-1"), strict=False)["audio"].encode("latin-1")
    assert found == call(triton_server, "Raw.", format="mp3", max_length=3, seed=5, stream=False).audio


def test_an_error_after_the_first_chunk_comes_with_status_200(triton_server: TritonServer):
    body = {"target_text": "Long.", **ENDLESS, "encoding": "base64", "deadline_ms": 700}
    status, events = generate_stream(triton_server, body)
    assert status == 200
    assert len(events) >= 2
    assert all("error" not in event for event in events[:-1])
    assert events[-1]["error"].startswith("[DEADLINE_EXCEEDED] request ")


def test_priority_and_timeout_are_inert_over_generate(triton_server: TritonServer):
    body = {"target_text": "Hi.", "stream": False, "encoding": "base64", "max_length": 2, "priority": 1, "timeout": 1}
    status, answer = generate(triton_server, body)
    assert (status, answer.get("is_last")) == (200, True)


def test_triton_counts_a_refused_request_as_a_success(triton_server: TritonServer):
    def successes() -> float:
        _, text = ask(triton_server.metrics_url, "GET", "/metrics")
        return float(re.findall(rb'^nv_inference_request_success\{model="voxcpm".*\} (\S+)', text, re.M)[0])

    before = successes()
    assert call(triton_server, " ").code == "INVALID_TEXT"
    wait_until(lambda: successes() > before, GENEROUS_S)  # it counts after it has answered
    assert successes() == before + 1


def test_bytes_that_end_in_zeros_arrive_whole(triton_server: TritonServer):
    silence_at_the_end = clip(seconds=0.5)[:-8_000] + bytes(8_000)  # a wav: its header counts on those bytes
    assert call(triton_server, max_length=1, reference_audio=silence_at_the_end).errors == []
    assert call(triton_server, max_length=1, reference_audio=silence_at_the_end.rstrip(b"\0")[:20]).errors
    chunks = call(triton_server, max_length=30, min_length=30, **ENDLESS).chunks
    for seed in range(8):
        chunks += call(triton_server, max_length=6, seed=seed, **ENDLESS).chunks
    assert any(chunk["audio"].endswith(b"\0") for chunk in chunks)
    assert all(len(chunk["audio"]) == 2 * chunk["num_samples"] for chunk in chunks)


def test_an_input_without_elements_is_refused(triton_server: TritonServer):
    request = service_pb2.ModelInferRequest(model_name="voxcpm")
    request.inputs.add(name="target_text", datatype="BYTES", shape=[0])
    request.raw_input_contents.append(b"")
    with grpc.insecure_channel(triton_server.grpc_url) as channel:
        (answer,) = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]), timeout=60)
    assert answer.error_message


def test_a_whole_answer_larger_than_the_shared_memory_region(triton_server: TritonServer):
    answer = call(triton_server, format="pcm_f32le", stream=False, max_length=64, min_length=64, **ENDLESS)
    (chunk,) = answer.chunks
    assert len(chunk["audio"]) == 4 * chunk["num_samples"] > 1 << 20


def test_requests_on_one_stream_end_one_by_one(triton_server: TritonServer):
    """Chunks of several requests on one gRPC stream interleave; each has its own id and its own FINAL."""
    requests = []
    for index in range(4):
        request = service_pb2.ModelInferRequest(model_name="voxcpm", id=f"one-{index}")
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        request.inputs.add(name="target_text", datatype="BYTES", shape=[1])
        request.raw_input_contents.append(b"\3\0\0\0Hi.")
        request.inputs.add(name="max_length", datatype="INT32", shape=[1])
        request.raw_input_contents.append(np.int32(3 + index).tobytes())
        requests.append(request)
    chunks: dict[str, list[bool]] = {}
    with grpc.insecure_channel(triton_server.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for answer in stub.ModelStreamInfer(iter(requests), timeout=60):
            assert not answer.error_message
            response = answer.infer_response
            chunks.setdefault(response.id, []).append(response.parameters["triton_final_response"].bool_param)
    assert sorted(chunks) == [f"one-{index}" for index in range(4)]
    assert all(finals == [False] * (len(finals) - 1) + [True] for finals in chunks.values())


def test_an_id_of_the_caller_s_need_not_be_unique(triton_server: TritonServer):
    inputs = {"target_text": "Hi.", "max_length": 3, "seed": 1}
    twins = [GrpcCall(triton_server, inputs, request_id="same") for _ in range(2)]
    first, second = (each.finish() for each in twins)
    assert first.errors == second.errors == []
    assert same_sound(first.audio, second.audio)
