"""The ensemble `voxcpm_mp3` on a real server: the mp3 of `voxcpm`, by way of three models."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.server.clips import clip
from tests.server.instance import Instance
from tests.server.streams import LONG
from tests.server.wire import Answer, GrpcCall, call
from voxcpm_client import Client
from voxcpm_client.errors import InvalidParameter
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
ENSEMBLE = "voxcpm_mp3"
SAID = {"target_text": "Hello there.", "seed": 5, "max_length": 9, "inference_timesteps": 2}
FREED_S = 1.0
MARGIN = 5  # a shared machine


@pytest.fixture
def instance(triton_server: TritonServer) -> Iterator[Instance]:
    with Instance(triton_server) as instance:
        instance.wait_until_idle()
        yield instance
        instance.wait_until_idle()


def ensemble(server: TritonServer, **inputs: Any) -> Answer:
    return GrpcCall(server, inputs, model=ENSEMBLE, request_id="r1").finish()


def single(server: TritonServer, target_text: str, **inputs: Any) -> Answer:
    return call(server, target_text, format="mp3", **inputs)


@pytest.mark.parametrize(
    "inputs",
    [
        {}, {"bitrate": 64}, {"reference_audio": clip(0.71)},
        {"prompt_audio": clip(0.71), "prompt_text": "a tone"},
        {"prompt_audio": clip(0.1), "prompt_text": "a tone", "reference_audio": clip(0.71)},
    ],
)  # fmt: skip
def test_the_bytes_are_those_of_the_single_model(triton_server: TritonServer, inputs: dict[str, Any]):
    wanted = single(triton_server, **SAID, **inputs)
    answer = ensemble(triton_server, **SAID, **inputs)
    assert answer.errors == wanted.errors == []
    assert answer.audio == wanted.audio
    assert [chunk["chunk_index"] for chunk in answer.chunks] == list(range(len(answer.chunks)))
    assert [chunk["is_last"] for chunk in answer.chunks] == [False] * (len(answer.chunks) - 1) + [True]
    assert all(chunk["audio"] for chunk in answer.chunks[:-1])
    assert answer.chunks[-1]["finish_reason"] == wanted.chunks[-1]["finish_reason"]
    assert {chunk["sample_rate"] for chunk in answer.chunks} == {wanted.chunks[0]["sample_rate"]}
    assert {chunk["used_seed"] for chunk in answer.chunks} == {SAID["seed"]}
    assert {chunk["request_id"] for chunk in answer.chunks} == {b"r1"}
    assert sum(chunk["num_samples"] for chunk in answer.chunks) == sum(chunk["num_samples"] for chunk in wanted.chunks)


def test_streams_at_once_do_not_mix(triton_server: TritonServer):
    inputs = [{**SAID, "seed": seed, "max_length": 4 + seed} for seed in range(8)]
    wanted = [single(triton_server, **each).audio for each in inputs]
    with ThreadPoolExecutor(len(inputs)) as callers:
        answers = list(callers.map(lambda each: ensemble(triton_server, **each), inputs))
    assert [answer.errors for answer in answers] == [[]] * len(inputs)
    # A crowd can turn the last bit of a sample, which can turn any byte of an mp3: sizes are what is exact.
    assert [len(answer.audio) for answer in answers] == [len(each) for each in wanted]


def test_a_cancel_frees_the_engine_s_slot(instance: Instance):
    stream = GrpcCall(instance.server, LONG, model=ENSEMBLE, request_id="left")
    assert stream.next_event()
    instance.wait_for(running=1)
    stream.cancel()
    assert instance.wait_until_idle() < MARGIN * FREED_S


def test_errors_are_those_of_the_single_model(triton_server: TritonServer):
    for inputs, code in (
        ({"target_text": " "}, "INVALID_TEXT"), ({"target_text": "x", "bitrate": 77}, "INVALID_PARAMETER"),
        ({**LONG, "deadline_ms": 300}, "DEADLINE_EXCEEDED"),
    ):  # fmt: skip
        (error,) = ensemble(triton_server, **inputs).errors
        assert f"in ensemble '{ENSEMBLE}', [{code}] request r1: " in error


@pytest.mark.parametrize("given", [{}, {"format": "mp3"}])
def test_a_client_of_the_ensemble(triton_server: TritonServer, given: dict[str, Any]):
    text, options = SAID["target_text"], {name: value for name, value in SAID.items() if name != "target_text"}
    with Client(triton_server.grpc_url, ENSEMBLE) as of_three, Client(triton_server.grpc_url) as of_one:
        speech = of_three.synthesize(text, **options, **given)
        wanted = of_one.synthesize(text, **options, format="mp3")
    assert (speech.audio, speech.format, speech.seed) == (wanted.audio, "mp3", SAID["seed"])


def test_a_client_asks_the_ensemble_for_no_other_format(instance: Instance):
    received = instance.status()["num_prefills"]
    with Client(instance.server.grpc_url, ENSEMBLE) as client:
        with pytest.raises(InvalidParameter, match="format: voxcpm_mp3 gives mp3, not 'wav'") as caught:
            next(client.stream("Hello.", format="wav"))
        with pytest.raises(InvalidParameter, match="sample_rate: voxcpm_mp3 does not have it"):
            client.synthesize("Hello.", sample_rate=8000)
    assert caught.value.code == "INVALID_PARAMETER"
    assert instance.status()["num_prefills"] == received
