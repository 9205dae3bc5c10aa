"""The client against a model that misbehaves, behind a real tritonserver."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.client.cancellations import num_cancelled, wait_for_cancelled, wait_for_threads
from tests.server_process import DOUBLE_REPOSITORY
from voxcpm_client import Chunk, Client, VoxError, asynthesize, errors, stream, synthesize
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server



@pytest.fixture
def client(double_server: TritonServer) -> Client:
    return Client(url=double_server.grpc_url, model="double", timeout_s=30)


async def _acollect(client: Client, text: str, **options: Any) -> list[Chunk]:
    return [chunk async for chunk in client.astream(text, **options)]


def _collect(client: Client, text: str, **options: Any) -> list[Chunk]:
    return list(client.stream(text, **options))


def _collect_in_loop(client: Client, text: str, **options: Any) -> list[Chunk]:
    return asyncio.run(_acollect(client, text, **options))


Collect = Callable[..., list[Chunk]]
both = pytest.mark.parametrize("collect", [_collect, _collect_in_loop], ids=["sync", "async"])


@both
def test_sends_only_what_was_given(client: Client, collect: Collect) -> None:
    chunks = collect(client, "echo", seed=3, prompt_text=None)
    received = json.loads(chunks[0].audio)
    assert received.pop("timeout_us") == pytest.approx(30_000_000, rel=0.01)
    assert received == {
        "target_text": ["object", [1], [b"echo".hex()]],
        "seed": ["int64", [1], [3]],
    }


def test_every_input_arrives_with_its_type(client: Client, tmp_path: Any) -> None:
    (tmp_path / "voice.wav").write_bytes(b"\x00ref\xff")
    latents = np.arange(6, dtype=np.float64).reshape(3, 2)
    chunks = _collect(
        client, "echo", format="mp3", bitrate=96, prompt_audio=b"\xffprompt\x00", prompt_text="grüß",
        prompt_latents=latents.T, reference_audio=tmp_path / "voice.wav", reference_latents=latents, cfg_value=1.5,
        temperature=0.25, sample_rate=24000, deadline_ms=5000,
        inference_timesteps=12, min_length=1, max_length=9, length_cap=False, ignore_stop=True, seed=-(2**40),
        return_latents=True, normalize=True, retry_badcase=True, voice="änna",
    )  # fmt: skip
    received = json.loads(chunks[0].audio)
    del received["timeout_us"]
    assert received == {
        "target_text": ["object", [1], [b"echo".hex()]],
        "format": ["object", [1], [b"mp3".hex()]],
        "bitrate": ["int32", [1], [96]],
        "sample_rate": ["int32", [1], [24000]],
        "deadline_ms": ["int32", [1], [5000]],
        "prompt_audio": ["object", [1], [b"\xffprompt\x00".hex()]],
        "prompt_text": ["object", [1], ["grüß".encode().hex()]],
        "prompt_latents": ["float32", [2, 3], latents.T.tolist()],
        "reference_audio": ["object", [1], [b"\x00ref\xff".hex()]],
        "reference_latents": ["float32", [3, 2], latents.tolist()],
        "voice": ["object", [1], ["änna".encode().hex()]],
        "cfg_value": ["float32", [1], [1.5]],
        "temperature": ["float32", [1], [0.25]],
        "inference_timesteps": ["int32", [1], [12]],
        "min_length": ["int32", [1], [1]],
        "max_length": ["int32", [1], [9]],
        "length_cap": ["bool", [1], [False]],
        "ignore_stop": ["bool", [1], [True]],
        "seed": ["int64", [1], [-(2**40)]],
        "return_latents": ["bool", [1], [True]],
        "normalize": ["bool", [1], [True]],
        "retry_badcase": ["bool", [1], [True]],
        "stream": ["bool", [1], [False]],
    }


@both
def test_chunk_fields(client: Client, collect: Collect) -> None:
    first, last = collect(client, "latents", request_id="r-1", seed=8)
    assert (first.index, first.is_last, first.finish_reason, first.audio) == (0, False, "", b"a")
    assert (last.index, last.is_last, last.finish_reason, last.audio) == (1, True, "stop", b"b")
    assert (last.request_id, last.seed, last.sample_rate, last.num_samples) == ("r-1", 8, 16000, 160)
    assert last.duration_s == 0.01
    assert last.latents is not None
    assert last.latents.tolist() == [[1, 1, 1]]


def test_synthesize_joins_the_chunks(double_server: TritonServer) -> None:
    where = {"url": double_server.grpc_url, "model": "double"}
    for speech in (synthesize("latents", **where), asyncio.run(asynthesize("latents", **where))):
        assert speech.audio == b"ab"
        assert (speech.num_samples, speech.seed, speech.finish_reason, speech.format) == (320, 5, "stop", "pcm_s16le")
        assert speech.latents is not None
        assert speech.latents.shape == (3, 3)
        assert 0 < speech.ttfa_ms <= speech.wall_ms
        assert speech.rtf == pytest.approx(speech.wall_ms / 20)


@both
@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("disorder", errors.StreamBroken, "chunk 2 came where chunk 1 was due"),
        ("no last", errors.StreamBroken, "ended after 1 chunks, before its last"),
        ("after last", errors.StreamBroken, "after the last one"),
        ("error: [INVALID_TEXT] request r: target_text is empty", errors.InvalidText, "target_text is empty"),
        ("late error: [INTERNAL] request r: a fault", errors.InternalError, "a fault"),
        ("error: [BRAND_NEW] request r: what", VoxError, "what"),
        ("error: something of Triton's own", VoxError, "something of Triton's own"),
    ],
)
def test_failures_are_typed(client: Client, collect: Collect, text: str, kind: type[VoxError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        collect(client, text)
    assert type(caught.value) is kind


@both
def test_gap_timeout_and_its_cancellation(client: Client, collect: Collect) -> None:
    before = num_cancelled(client)
    impatient = Client(url=client.url, model="double", gap_timeout_s=0.3)
    with pytest.raises(errors.GapTimeout, match=r"no chunk for 0\.3 s"):
        collect(impatient, "silence")
    wait_for_cancelled(client, before + 1)


def test_the_first_chunk_may_be_late(double_server: TritonServer) -> None:
    patient = Client(url=double_server.grpc_url, model="double", gap_timeout_s=0.5)
    assert len(_collect(patient, "slow: 1")) == 1


@both
def test_deadline(double_server: TritonServer, collect: Collect) -> None:
    hasty = Client(url=double_server.grpc_url, model="double", timeout_s=0.5)
    with pytest.raises(errors.DeadlineExceeded):
        collect(hasty, "slow: 3")


def test_closing_the_iterator_cancels(client: Client) -> None:
    before, threads = num_cancelled(client), threading.active_count()
    chunks = client.stream("silence")
    next(chunks)
    chunks.close()
    wait_for_cancelled(client, before + 1)
    wait_for_threads(threads)


def test_closing_the_asynchronous_iterator_cancels(client: Client) -> None:
    before = num_cancelled(client)

    async def leave_early() -> None:
        async with aclosing(client.astream("silence")) as chunks:
            async for _ in chunks:
                return

    asyncio.run(leave_early())
    wait_for_cancelled(client, before + 1)


def test_cancelling_the_task_cancels(client: Client) -> None:
    before = num_cancelled(client)

    async def cancel() -> None:
        task = asyncio.create_task(client.asynthesize("silence"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    wait_for_cancelled(client, before + 1)


def test_cancelled_streams_leave_no_threads(client: Client) -> None:
    threads = threading.active_count()
    for _ in range(5):
        chunks = client.stream("silence")
        next(chunks)
        chunks.close()
    wait_for_threads(threads)


@both
def test_the_server_s_error_wins_over_what_follows_it(client: Client, collect: Collect) -> None:
    impatient = Client(url=client.url, model="double", gap_timeout_s=0.3)
    with pytest.raises(errors.InvalidText, match="empty"):
        collect(impatient, "error and silence: [INVALID_TEXT] request r: empty")


def test_many_streams_of_one_client(client: Client) -> None:
    async def crowd() -> list[list[Chunk]]:
        return await asyncio.gather(*(_acollect(client, "slow: 0.3", seed=seed) for seed in range(2)))

    results = asyncio.run(crowd())
    assert [[chunk.seed for chunk in chunks] for chunks in results] == [[0], [1]]


@both
def test_unknown_model_is_not_ready(double_server: TritonServer, collect: Collect) -> None:
    with pytest.raises(errors.UnknownModel, match="nowhere"):
        collect(Client(url=double_server.grpc_url, model="nowhere"), "hello")


@both
def test_no_server(collect: Collect) -> None:
    with pytest.raises(errors.ServerUnavailable, match=r"no answer .*127\.0\.0\.1:9.*; url is the server's"):
        collect(Client(url="127.0.0.1:9"), "hello")


@both
def test_http_port(double_server: TritonServer, collect: Collect) -> None:
    with pytest.raises(errors.ServerUnavailable, match="usually with port 8001"):
        collect(Client(url=double_server.http_url), "hello")


def test_a_server_that_dies_in_the_middle(start_server: Callable[..., TritonServer]) -> None:
    server = start_server(repository=DOUBLE_REPOSITORY)
    client = Client(url=server.grpc_url, model="double")
    failing = client.stream("late error and silence: [INTERNAL] request r: a fault")
    next(failing)

    async def kill_in_the_middle() -> None:
        async with aclosing(client.astream("silence")) as chunks:
            await anext(chunks)
            os.killpg(server.pid, signal.SIGKILL)
            with pytest.raises(errors.ConnectionLost, match="was lost after 1 chunks"):
                await anext(chunks)

    chunks = client.stream("silence")
    next(chunks)
    asyncio.run(kill_in_the_middle())
    with pytest.raises(errors.ConnectionLost, match="was lost after 1 chunks"):
        next(chunks)
    with pytest.raises(errors.InternalError, match="a fault"):
        next(failing)


def test_a_dead_stub(start_server: Callable[..., TritonServer]) -> None:
    server = start_server(repository=DOUBLE_REPOSITORY)
    client = Client(url=server.grpc_url, model="double", gap_timeout_s=1)
    chunks = client.stream("silence")
    next(chunks)
    time.sleep(0.5)  # past the end of execute(), whose request would get an error
    for stub in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split():
        os.kill(int(stub), signal.SIGKILL)
    with pytest.raises(errors.GapTimeout):
        next(chunks)
    with pytest.raises(errors.StubUnhealthy):
        client.synthesize("latents")
    os.killpg(server.pid, signal.SIGKILL)  # it would wait for the lost stream


def test_full_queue_is_overloaded(start_server: Callable[..., TritonServer]) -> None:
    url = start_server(repository=DOUBLE_REPOSITORY).grpc_url
    with pytest.raises(errors.Overloaded, match="Exceeds maximum queue size"):
        asyncio.run(_overload(url))


async def _overload(url: str) -> None:
    client = Client(url=url, model="double", timeout_s=30, retries=0)
    requests = [asyncio.create_task(client.asynthesize("block the queue")) for _ in range(16)]
    try:
        await asyncio.gather(*requests)
    finally:
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


def test_stream_function_takes_the_connection_too(double_server: TritonServer) -> None:
    chunks = list(stream("latents", url=double_server.grpc_url, model="double", gap_timeout_s=5.0, seed=1))
    assert [chunk.seed for chunk in chunks] == [1, 1]
