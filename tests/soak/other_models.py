"""The same mixture for the models around `voxcpm`: the ensemble, and those without weights."""

from __future__ import annotations

import json
import random

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.server.clips import clip
from tests.server.streams import GrpcStream
from tests.server.wire import generate, infer_input
from tests.soak.kinds import BAD, LONG, Inputs, Kind, good_inputs
from voxcpm_client.server import TritonServer

CLIP = clip(seconds=0.5)
NOT_OF_THE_ENSEMBLE = ("format", "encoding", "sample_rate", "return_latents", "prompt_audio", "prompt_text")


def _infer(server: TritonServer, model: str, inputs: Inputs, request_id: str) -> grpcclient.InferResult:
    tensors = [infer_input(name, value) for name, value in inputs.items()]
    with grpcclient.InferenceServerClient(server.grpc_url) as client:
        return client.infer(model, tensors, request_id=request_id)


def ensemble(server: TritonServer, draw: random.Random, request_id: str) -> None:
    inputs = {name: value for name, value in good_inputs(draw).items() if name not in NOT_OF_THE_ENSEMBLE}
    if "reference_audio" in inputs:
        inputs["reference_audio"] = CLIP
    stream = GrpcStream(server, inputs, request_id, model="voxcpm_mp3")
    stream.finish()
    assert not stream.errors, stream.errors
    assert stream.num_chunks


def ensemble_deadline(server: TritonServer, draw: random.Random, request_id: str) -> None:
    stream = GrpcStream(server, {**LONG, "deadline_ms": draw.randint(1, 600)}, request_id, model="voxcpm_mp3")
    stream.finish()
    (error,) = stream.errors
    assert "[DEADLINE_EXCEEDED]" in error, error


def ensemble_leaver(server: TritonServer, draw: random.Random, request_id: str) -> None:
    stream = GrpcStream(server, LONG, request_id, model="voxcpm_mp3")
    for _ in range(draw.randint(1, 3)):
        assert stream.next_chunk(), stream.errors
    stream.leave()


def blocking(server: TritonServer, draw: random.Random, request_id: str) -> None:
    inputs = {**good_inputs(draw), "encoding": "base64"}
    if draw.random() < 0.5:
        status, answer = generate(server, {**inputs, "id": request_id}, "voxcpm_blocking")
        assert (status, answer.get("is_last")) == (200, True), answer
    else:
        assert _infer(server, "voxcpm_blocking", inputs, request_id).as_numpy("is_last")[0]


def blocking_bad(server: TritonServer, draw: random.Random, request_id: str) -> None:
    change, code = draw.choice(BAD)
    with pytest.raises(InferenceServerException) as refused:
        _infer(server, "voxcpm_blocking", {"target_text": "Yes.", **change}, request_id)
    assert f"[{code}] request {request_id}: " in refused.value.message(), refused.value


def encode(server: TritonServer, draw: random.Random, request_id: str) -> None:
    latents = _infer(server, "voxcpm_encode", {"audio": clip(seconds=draw.uniform(0.2, 0.9))}, request_id)
    assert latents.as_numpy("latents").ndim == 2


def control(server: TritonServer, draw: random.Random, request_id: str) -> None:
    request = json.dumps({"op": draw.choice(["status", "info", "voices", "loras"])})
    status, answer = generate(server, {"request": request, "id": request_id}, "voxcpm_control")
    assert status == 200, answer
    assert json.loads(answer["response"])["instances"]


OTHER_KINDS = [
    Kind("ensemble", 6, ensemble), Kind("ensemble deadline", 2, ensemble_deadline),
    Kind("ensemble leaver", 2, ensemble_leaver), Kind("blocking", 8, blocking), Kind("blocking bad", 3, blocking_bad),
    Kind("encode", 3, encode), Kind("control", 4, control),
]
