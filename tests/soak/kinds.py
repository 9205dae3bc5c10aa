"""A mixed load: good requests, bad ones, callers who leave and deadlines, over gRPC and HTTP."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.server.clips import clip
from tests.server.streams import GrpcStream, HttpStream
from tests.server.wire import generate, generate_stream
from voxcpm_client.server import TritonServer

Inputs = dict[str, Any]
LONG: Inputs = {"target_text": "On and on and on", "ignore_stop": True, "length_cap": False, "inference_timesteps": 2}
BAD: list[tuple[Inputs, str]] = [
    ({"target_text": " "}, "INVALID_TEXT"),
    ({"target_text": "word " * 3000}, "TOO_LARGE"),
    ({"cfg_value": 11.0}, "INVALID_PARAMETER"),
    ({"format": "flv"}, "INVALID_PARAMETER"),
    ({"max_length": 0}, "INVALID_PARAMETER"),
    ({"prompt_text": "alone"}, "CONFLICTING_INPUTS"),
    ({"reference_audio": "bm90IGF1ZGlv", "encoding": "base64"}, "INVALID_AUDIO"),
]
FORMATS = ("pcm_s16le", "pcm_f32le", "wav", "mp3")
CLIP = base64.b64encode(clip(seconds=0.5)).decode()


class NoFinal(AssertionError):
    """An answer that did not end as every answer must."""


@dataclass(frozen=True)
class Kind:
    """One kind of request; `send` raises when the answer is not the one that is due."""

    name: str
    weight: int
    send: Callable[[TritonServer, random.Random, str], None]


def good_inputs(draw: random.Random, formats: tuple[str, ...] = FORMATS) -> Inputs:
    inputs: Inputs = {
        "target_text": draw.choice(["Yes.", "Good morning, everyone.", "(sad) It rains.", "你好，世界"]),
        "max_length": draw.randint(1, 5),
        "inference_timesteps": draw.choice([2, 2, 3, 4, 10]),
        "cfg_value": draw.choice([1.0, 2.0, 3.5]),
        "temperature": draw.choice([0.0, 0.7, 1.0]),
        "format": draw.choice(formats),
    }
    if draw.random() < 0.5:
        inputs["seed"] = draw.randrange(1 << 40)
    if draw.random() < 0.2:
        inputs["sample_rate"] = draw.choice([8000, 16000, 24000])
    if draw.random() < 0.1:
        inputs["return_latents"] = True
    if draw.random() < 0.1:
        inputs |= {"reference_audio": CLIP, "encoding": "base64"}
    if draw.random() < 0.1:
        inputs |= {"prompt_audio": CLIP, "prompt_text": "a tone", "encoding": "base64"}
    return inputs


def _grpc(server: TritonServer, inputs: Inputs, request_id: str) -> GrpcStream:
    """Read to FINAL, after which nothing may follow."""
    stream = GrpcStream(server, inputs, request_id)
    stream.finish()
    return stream


def grpc_stream(server: TritonServer, draw: random.Random, request_id: str) -> None:
    stream = _grpc(server, good_inputs(draw), request_id)
    assert not stream.errors, stream.errors
    assert stream.num_chunks


def grpc_whole(server: TritonServer, draw: random.Random, request_id: str) -> None:
    stream = _grpc(server, {**good_inputs(draw, (*FORMATS, "flac")), "stream": False}, request_id)
    assert not stream.errors, stream.errors
    assert stream.num_chunks == 1


def grpc_bad(server: TritonServer, draw: random.Random, request_id: str) -> None:
    change, code = draw.choice(BAD)
    stream = _grpc(server, {"target_text": "Yes.", **change}, request_id)
    (error,) = stream.errors
    assert f"[{code}] request {request_id}: " in error, error


def grpc_deadline(server: TritonServer, draw: random.Random, request_id: str) -> None:
    stream = _grpc(server, {**LONG, "deadline_ms": draw.randint(1, 600)}, request_id)
    (error,) = stream.errors
    assert "[DEADLINE_EXCEEDED]" in error, error


def grpc_leaver(server: TritonServer, draw: random.Random, request_id: str) -> None:
    stream = GrpcStream(server, LONG, request_id)
    for _ in range(draw.randint(0, 3)):
        assert stream.next_chunk(), stream.errors
    stream.leave()


def http_whole(server: TritonServer, draw: random.Random, request_id: str) -> None:
    body = {**good_inputs(draw), "encoding": "base64", "stream": False, "id": request_id}
    status, answer = generate(server, body)
    assert status == 200, answer
    if answer.get("is_last") is not True:
        raise NoFinal(str(answer)[:200])


def http_stream(server: TritonServer, draw: random.Random, request_id: str) -> None:
    body = {**good_inputs(draw), "encoding": "base64", "id": request_id}
    status, events = generate_stream(server, body)
    assert status == 200, events
    if events[-1].get("is_last") is not True:
        raise NoFinal(str(events[-1])[:200])


def http_bad(server: TritonServer, draw: random.Random, request_id: str) -> None:
    change, code = draw.choice(BAD)
    body = {"target_text": "Yes.", "stream": False, "encoding": "base64", "id": request_id, **change}
    status, answer = generate(server, body)
    assert status == 400, answer
    assert answer["error"].startswith(f"[{code}] request {request_id}: "), answer


def http_leaver(server: TritonServer, draw: random.Random, request_id: str) -> None:
    stream = HttpStream(server, {**LONG, "id": request_id})
    for _ in range(draw.randint(1, 3)):
        assert stream.next_event() is not None
    stream.leave()


KINDS = [
    Kind("gRPC stream", 40, grpc_stream), Kind("gRPC whole", 10, grpc_whole), Kind("gRPC bad", 8, grpc_bad),
    Kind("gRPC deadline", 4, grpc_deadline), Kind("gRPC leaver", 10, grpc_leaver), Kind("HTTP whole", 12, http_whole),
    Kind("HTTP stream", 10, http_stream), Kind("HTTP bad", 4, http_bad), Kind("HTTP leaver", 2, http_leaver),
]
