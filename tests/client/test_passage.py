"""Text that arrives in pieces, spoken by a model that says what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import aclosing, closing
from typing import Any

import numpy as np
import pytest

from tests.client.cancellations import num_cancelled, wait_for_cancelled, wait_for_threads
from voxcpm_client import Chunk, Client, astream_text, errors, stream_text
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server

SENTENCES = ["This is the first sentence of all.", " And here the second one follows.", " A third one ends it all."]
TEXT = "".join(SENTENCES)


@pytest.fixture
def client(double_server: TritonServer) -> Client:
    return Client(url=double_server.grpc_url, model="double", timeout_s=30)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A request id that no other test uses."""
    return request.node.name


def _collect(client: Client, text: Iterable[str] | str, **options: Any) -> list[Chunk]:
    return list(client.stream_text(text, **options))


def _collect_in_loop(client: Client, text: Iterable[str] | str, **options: Any) -> list[Chunk]:
    async def pieces() -> AsyncIterator[str]:
        for piece in text:
            await asyncio.sleep(0)
            yield piece

    async def collect() -> list[Chunk]:
        given = text if isinstance(text, str) else pieces()
        return [chunk async for chunk in client.astream_text(given, **options)]

    return asyncio.run(collect())


Collect = Callable[..., list[Chunk]]
both = pytest.mark.parametrize("collect", [_collect, _collect_in_loop], ids=["sync", "async"])


def _requests(client: Client, name: str) -> list[dict[str, Any]]:
    return json.loads(client.synthesize(f"report: {name}-").audio)


@both
def test_sentences_are_requests_with_one_voice_and_seeds_of_their_own(
    client: Client, collect: Collect, name: str
) -> None:
    chunks = collect(client, TEXT, request_id=name, seed=5)
    requests = _requests(client, name)
    assert [request["text"] for request in requests] == SENTENCES
    assert [request["id"] for request in requests] == [f"{name}-{index}" for index in range(3)]
    assert requests[0]["seed"] == 5
    assert len({request["seed"] for request in requests}) == 3
    assert [request["prompt_text"] for request in requests] == [None, SENTENCES[0], SENTENCES[0] + SENTENCES[1]]
    latents = [request["prompt_latents"] for request in requests]
    assert latents[0] is None
    assert latents[1] == latents[2][:4]
    assert len(latents[2]) == 8
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.finish_reason for chunk in chunks] == [""] * (len(chunks) - 1) + ["stop"]
    assert {chunk.seed for chunk in chunks} == {5}
    assert all(chunk.latents is None for chunk in chunks)


@both
def test_the_result_depends_on_the_text_alone(client: Client, collect: Collect, name: str) -> None:
    whole = collect(client, TEXT, request_id=f"{name}-whole", seed=5)
    pieces = collect(client, [TEXT[start : start + 3] for start in range(0, len(TEXT), 3)], request_id=name, seed=5)
    assert b"".join(chunk.audio for chunk in pieces) == b"".join(chunk.audio for chunk in whole)
    seeds = [[request["seed"] for request in _requests(client, given)] for given in (name, f"{name}-whole")]
    assert seeds[0][:3] == seeds[1]


@both
def test_the_anchor_stops_growing_after_three_seconds(client: Client, collect: Collect, name: str) -> None:
    collect(client, [f" Sentence number {index} of this long text." for index in range(8)], request_id=name, ahead=3)
    prompts = [request["prompt_text"] for request in _requests(client, name)]
    assert prompts[6] == prompts[7]
    assert len(prompts[6]) > len(prompts[5])


@both
def test_a_given_voice_holds_for_all(client: Client, collect: Collect, name: str, tmp_path: Any) -> None:
    voice = tmp_path / "voice.wav"
    voice.write_bytes(b"RIFF")
    collect(client, TEXT, request_id=name, reference_audio=voice)
    requests = _requests(client, name)
    assert all(request["has_reference"] for request in requests)
    assert [request["prompt_text"] for request in requests] == [None] * 3


@both
def test_a_registered_voice_holds_for_all(client: Client, collect: Collect, name: str) -> None:
    collect(client, TEXT, request_id=name, voice="anna")
    assert [request["voice"] for request in _requests(client, name)] == ["anna"] * 3
    assert [request["prompt_text"] for request in _requests(client, name)] == [None] * 3


@both
def test_latents_on_request(client: Client, collect: Collect) -> None:
    chunks = collect(client, TEXT, return_latents=True)
    latents = [chunk.latents for chunk in chunks if chunk.latents is not None]
    assert np.concatenate(latents).shape == (12, 3)


@both
def test_a_drawn_seed_is_told(client: Client, collect: Collect, name: str) -> None:
    chunks = collect(client, TEXT, request_id=name)
    assert _requests(client, name)[0]["seed"] == chunks[0].seed


@both
@pytest.mark.parametrize("audio_format", ["pcm_s16le", "pcm_f32le", "wav"])
def test_joins_in_every_format(client: Client, collect: Collect, audio_format: str) -> None:
    audio = b"".join(chunk.audio for chunk in collect(client, TEXT, format=audio_format))
    dtype, scale = ("<f4", 1.0) if audio_format == "pcm_f32le" else ("<i2", 2.0**14)
    samples = np.frombuffer(audio[44:] if audio_format == "wav" else audio, dtype) / scale
    assert len(samples) == 3 * 8000 + 2 * 4000, "three sentences and two pauses of a quarter of a second"
    tone, fade = 1 / 20, np.pi / 2 / 80
    assert np.abs(np.diff(samples)).max() <= tone + fade, "a bare join has a step of 1.4"


@both
@pytest.mark.parametrize("audio_format", ["mp3", "flac", "opus"])
def test_formats_that_cannot_be_joined(client: Client, collect: Collect, audio_format: str) -> None:
    with pytest.raises(errors.InvalidParameter, match="sentences are joined as"):
        collect(client, TEXT, format=audio_format)


@both
@pytest.mark.parametrize("text", ["", " \n ", "...", [], ["", " "]])
def test_nothing_to_say(client: Client, collect: Collect, text: list[str] | str) -> None:
    with pytest.raises(errors.InvalidText, match="nothing that can be spoken"):
        collect(client, text)


@both
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"max_chars": 3}, errors.InvalidParameter),
        ({"first_max_chars": 3}, errors.InvalidParameter),
        ({"ahead": -1}, errors.InvalidParameter),
        ({"sedd": 1}, TypeError),
        ({"seed": 2**64}, errors.InvalidParameter),
        ({"reference_audio": "nowhere.wav"}, FileNotFoundError),
    ],
)
def test_bad_options(client: Client, collect: Collect, options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        collect(client, TEXT, **options)


@both
def test_pieces_that_are_no_text(client: Client, collect: Collect) -> None:
    with pytest.raises(TypeError, match="expected str, got bytes"):
        collect(client, [b"bytes"])


def test_an_error_in_the_middle_comes_in_its_turn(client: Client, name: str) -> None:
    text = SENTENCES[0] + " This sentence has to FAIL here." + SENTENCES[2]
    heard: list[Chunk] = []
    with pytest.raises(errors.InternalError, match="a fault"):
        heard.extend(client.stream_text(text, request_id=name))  # takes what comes before the error
    assert sum(chunk.num_samples for chunk in heard) >= 8000
    assert not any(chunk.is_last for chunk in heard)
    assert len(_requests(client, name)) == 2


@both
def test_an_error_of_the_text_comes_after_what_it_gave(client: Client, collect: Collect, name: str) -> None:
    def failing() -> Iterator[str]:
        yield TEXT
        raise ConnectionError("the language model left")

    with pytest.raises(ConnectionError, match="left"):
        collect(client, failing(), request_id=name)
    assert len(_requests(client, name)) == 2, "the third sentence might have gone on"


SLOW = "Speak this slowly to us all. And this one slowly, too, please. And slowly this third one here."


def test_closing_cancels_all_that_run(client: Client) -> None:
    before, threads = num_cancelled(client), threading.active_count()
    with closing(client.stream_text(SLOW, ahead=2, reference_audio=b"RIFF")) as chunks:
        next(chunks)
    wait_for_cancelled(client, before + 2)
    wait_for_threads(threads)


def test_closing_cancels_all_that_run_in_a_loop(client: Client) -> None:
    before = num_cancelled(client)

    async def leave_early() -> None:
        async with aclosing(client.astream_text(SLOW, ahead=2, reference_audio=b"RIFF")) as chunks:
            await anext(chunks)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("voxcpm")]

    asyncio.run(leave_early())
    wait_for_cancelled(client, before + 2)


def test_cancelling_the_task_cancels_all(client: Client) -> None:
    before = num_cancelled(client)

    async def cancel() -> None:
        has_begun = asyncio.Event()

        async def read() -> None:
            async for _ in client.astream_text(SLOW, ahead=2, reference_audio=b"RIFF"):
                has_begun.set()

        task = asyncio.create_task(read())
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    wait_for_cancelled(client, before + 2)


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_requests_ahead_are_bounded(client: Client, name: str, ahead: int) -> None:
    chunks = client.stream_text(TEXT * 2, request_id=name, ahead=ahead, reference_audio=b"RIFF")
    next(chunks)
    end_s = time.monotonic() + 5
    while len(_requests(client, name)) < 1 + ahead:
        assert time.monotonic() < end_s
        time.sleep(0.05)
    time.sleep(0.5)
    assert len(_requests(client, name)) == 1 + ahead
    chunks.close()


def test_speech_begins_while_text_still_comes(client: Client) -> None:
    more = threading.Event()

    def pieces() -> Iterator[str]:
        yield SENTENCES[0] + " And"
        assert more.wait(10)
        yield " so on it goes."

    chunks = client.stream_text(pieces())
    first = next(chunks)
    more.set()
    rest = list(chunks)
    assert first.index == 0
    assert rest[-1].is_last
    assert sum(chunk.num_samples for chunk in [first, *rest]) == 2 * 8000 + 4000


def test_functions(double_server: TritonServer) -> None:
    where = {"url": double_server.grpc_url, "model": "double", "seed": 1, "retries": 0, "ahead": 2}
    chunks = list(stream_text(TEXT, **where))

    async def collect() -> list[Chunk]:
        return [chunk async for chunk in astream_text(TEXT, **where)]

    assert asyncio.run(collect()) == chunks
