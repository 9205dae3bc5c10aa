"""Voices, control and encoding on a real server: one life of a voice, while streams run."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as httpclient

from tests.processes import children_by_parent
from tests.server.clips import BAD_CLIPS, clip
from tests.server.instance import Instance
from tests.server.scraped import Scrape, wait_for_scrape
from tests.server.streams import LONG
from tests.server.wire import call, infer_values
from tests.server_process import ADMIN_TOKEN
from voxcpm_client import Client, errors
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server

CLIP = clip(seconds=0.71)  # not whole patches
SAID = {"seed": 5, "max_length": 3, "inference_timesteps": 2}


@pytest.fixture(scope="module")
def client(triton_server: TritonServer) -> Iterator[Client]:
    with Client(url=triton_server.grpc_url, token=ADMIN_TOKEN, timeout_s=60) as client:
        yield client


@pytest.fixture(scope="module")
def voice(client: Client) -> Iterator[str]:
    name = "änna/../🎤"
    added = client.add_voice(name, prompt_audio=CLIP, prompt_text="a tone", reference_audio=CLIP)
    assert (added.name, added.kind) == (name, "both")
    assert added.seconds == pytest.approx(2 * 0.71, abs=0.33), "filled up to whole patches"
    yield name
    client.remove_voice(name)


def test_a_voice_gives_the_samples_that_its_files_give(client: Client, voice: str):
    files = {"prompt_audio": CLIP, "prompt_text": "a tone", "reference_audio": CLIP}
    by_voice = client.synthesize("Hello there.", voice=voice, **SAID)
    assert by_voice.audio == client.synthesize("Hello there.", **files, **SAID).audio
    assert by_voice.audio != client.synthesize("Hello there.", **SAID).audio
    assert voice in [each.name for each in client.voices()]


COUNTERS = ("encodings", "voice_hits", "voice_misses", "shared_positions", "prefill_positions")
METRICS = ("audio_encodings", "voice_cache_hits", "voice_cache_misses", "shared_positions", "prefill_positions")


def test_a_second_use_encodes_nothing_and_prefills_its_own_text_alone(client: Client, triton_server: TritonServer):
    def status() -> dict[str, int]:
        with Instance(triton_server) as instance:
            return instance.status()

    def counts(**conditions: object) -> tuple[int, ...]:
        """How the counters grow with a request."""
        before = status()
        client.synthesize("Something else this time.", **conditions, **SAID)
        after = status()
        return tuple(after[f"num_{name}"] - before[f"num_{name}"] for name in COUNTERS)

    def in_metrics(scrape: Scrape) -> list[float]:
        return [scrape.value(f"voxcpm_{name}_total") for name in METRICS]

    finished = Scrape(triton_server).value("voxcpm_requests_finished_total")
    counts()
    wait_for_scrape(triton_server, lambda now: now.value("voxcpm_requests_finished_total") > finished)
    metrics_before, before = in_metrics(Scrape(triton_server)), status()
    *nothing, num_own = counts()
    assert nothing == [0, 0, 0, 0]
    registered, new = clip(seconds=0.437), clip(seconds=0.391)  # that no other test has
    client.add_voice("again", reference_audio=registered)
    client.add_voice("again, under another name", reference_audio=registered)
    *first, num_first = counts(voice="again")
    assert first == [0, 0, 1, 0], "it was encoded when it was registered"
    assert counts(voice="again") == (0, 1, 0, num_first - num_own, num_own)
    assert counts(voice="again, under another name") == (0, 1, 0, num_first - num_own, num_own)
    files = {"reference_audio": new, "prompt_audio": new, "prompt_text": "a tone"}
    *first, _ = counts(**files)
    assert first == [2, 0, 2, 0]
    num_encodings, num_hits, num_misses, num_shared, _ = counts(**files)
    assert (num_encodings, num_hits, num_misses) == (0, 2, 0)
    assert num_shared > 0
    for name in ("again", "again, under another name"):
        client.remove_voice(name)
    after = status()
    grown = [after[f"num_{name}"] - before[f"num_{name}"] for name in COUNTERS]
    expected = [value + growth for value, growth in zip(metrics_before, grown, strict=True)]
    wait_for_scrape(triton_server, lambda now: in_metrics(now) == expected)


@pytest.mark.parametrize("role", ["prompt", "reference"])
def test_encoded_latents_give_the_samples_that_the_file_gives(client: Client, role: str):
    words = {"prompt_text": "a tone"} if role == "prompt" else {}
    latents = client.encode(CLIP, role)
    assert latents.dtype == np.float32
    by_latents = client.synthesize("Hello there.", **{f"{role}_latents": latents}, **words, **SAID)
    by_file = client.synthesize("Hello there.", **{f"{role}_audio": CLIP}, **words, **SAID)
    assert by_latents.audio == by_file.audio


def test_a_removed_voice_is_unknown_and_its_stream_goes_on(client: Client, triton_server: TritonServer):
    client.add_voice("brief", reference_latents=client.encode(CLIP, "reference"))
    with closing(client.stream("On and on.", voice="brief", max_length=12, ignore_stop=True)) as chunks:
        next(chunks)
        client.remove_voice("brief")
        with pytest.raises(errors.UnknownVoice, match="there is no voice 'brief'"):
            client.synthesize("Hello.", voice="brief")
        assert sum(chunk.num_samples for chunk in chunks) > 0
    answer = call(triton_server, voice="x" * 300)
    assert answer.code == "UNKNOWN_VOICE"
    assert answer.errors[0].endswith(f"there is no voice '{'x' * 38}…")
    assert call(triton_server, voice="brief", prompt_text="words").code == "CONFLICTING_INPUTS"


def test_refusals_are_typed(client: Client, voice: str):
    with pytest.raises(errors.AlreadyExists, match="exists"):
        client.add_voice(voice, reference_audio=CLIP)
    with pytest.raises(errors.UnknownVoice):
        client.remove_voice("nobody")
    with pytest.raises(errors.Forbidden, match="needs the server's admin token"):
        Client(url=client.url, token="wrong").remove_voice(voice)
    with pytest.raises(errors.ConflictingInputs):
        client.add_voice("bad", prompt_audio=CLIP)
    for data in BAD_CLIPS.values():
        with pytest.raises(errors.InvalidAudio):
            client.add_voice("bad", reference_audio=data())
        with pytest.raises(errors.InvalidAudio):
            client.encode(data())
    with pytest.raises(errors.InvalidParameter, match="op: expected one of"):
        client.control("drian")
    with pytest.raises(errors.InvalidParameter, match="no engine is called 'nobody'"):
        client.control("status", model="nobody")
    assert "bad" not in [each.name for each in client.voices()]


def test_cancel_by_id_through_any_door_while_control_answers(client: Client, triton_server: TritonServer):
    options = {name: value for name, value in LONG.items() if name != "target_text"}
    streams = [client.stream("A very long story", request_id="theirs", **options) for _ in range(4)]
    for chunks in streams:
        next(chunks)
    status = client.status()
    assert (status["running"], status["ready"]) == (4, True)
    assert [each["instance"] for each in status["instances"]] == ["voxcpm_0_0"]
    assert client.queue() == []
    assert client.cancel("theirs") == 4
    for chunks in streams:
        with pytest.raises(errors.Cancelled, match="cancelled by its id"):
            list(chunks)
    with Instance(triton_server) as instance:
        instance.wait_until_idle()
    assert client.cancel("theirs") == 0


def test_asyncio_twins(client: Client):
    async def live() -> None:
        async with Client(url=client.url, token=ADMIN_TOKEN, timeout_s=60) as own:
            latents, info = await asyncio.gather(own.aencode(CLIP), own.ainfo())
            assert info["architecture"] == "voxcpm2"
            assert latents.shape[1] == info["feat_dim"]
            assert info["server_version"].count(".") == 2
            added = await own.aadd_voice("twin", prompt_latents=latents, prompt_text="a tone")
            assert added.kind == "prompt"
            assert "twin" in [each.name for each in await own.avoices()]
            await own.aremove_voice("twin")
            assert (await own.astatus())["ready"]
            assert await own.aqueue() == []
            assert await own.acancel("nobody") == 0
            with pytest.raises(errors.UnknownVoice):
                await own.aremove_voice("twin")

    asyncio.run(live())


@pytest.mark.parametrize("model", ["voxcpm_control", "voxcpm_encode"])
def test_the_light_models_have_one_process_without_torch(triton_server: TritonServer, model: str):
    children = children_by_parent()[triton_server.pid]
    stubs = [pid for pid in children if f"/{model}/" in Path(f"/proc/{pid}/cmdline").read_text()]
    (pid,) = stubs
    assert "torch" not in Path(f"/proc/{pid}/maps").read_text()


def test_control_over_http(triton_server: TritonServer):
    _, values = infer_values("request", json.dumps({"op": "queue"}))
    request = httpclient.InferInput("request", [1], "BYTES")
    request.set_data_from_numpy(values)
    with httpclient.InferenceServerClient(triton_server.http_url) as http:
        with pytest.raises(Exception, match=r"\[FORBIDDEN\]"):
            http.infer("voxcpm_control", [request])
        _, values = infer_values("request", json.dumps({"op": "status"}))
        request.set_data_from_numpy(values)
        answer = json.loads(http.infer("voxcpm_control", [request]).as_numpy("response")[0])
    assert answer["max_running"] == 64
    body = json.dumps({"request": json.dumps({"op": "status"})}).encode()
    url = f"http://{triton_server.http_url}/v2/models/voxcpm_control/generate"
    with urllib.request.urlopen(url, body) as response:
        assert json.loads(json.loads(response.read())["response"])["max_running"] == 64


def test_a_full_engine_answers_and_encodes(narrow: Instance):
    options = {name: value for name, value in LONG.items() if name != "target_text"}
    loop = asyncio.new_event_loop()
    with Client(url=narrow.server.grpc_url, token=ADMIN_TOKEN, timeout_s=60) as client, closing(loop):
        running = client.stream("A very long story", **options)
        next(running)
        waiting = [loop.create_task(client.asynthesize("Hello", request_id=f"w{index}")) for index in range(2)]
        loop.run_until_complete(asyncio.sleep(0.5))
        assert sorted(client.queue()) == ["w0", "w1"], "one waits in the engine, one at the gate"
        assert client.encode(CLIP).shape[1] == client.info()["feat_dim"]
        added = client.add_voice(prompt_audio=CLIP, prompt_text="a tone")
        assert [each.name for each in client.voices()] == [added.name]
        assert client.cancel("w0") + client.cancel("w1") == 2
        ended = loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        assert {type(error) for error in ended} == {errors.Cancelled}
        assert next(running).num_samples > 0
        running.close()
    narrow.wait_until_idle()


def test_a_replica_has_the_voices_and_loses_them_at_once(
    client: Client, start_server: Callable[..., TritonServer], triton_server: TritonServer
):
    folder = triton_server.log_file.parent / "voices"
    client.add_voice("shared", reference_audio=CLIP)
    expected = client.synthesize("Hello there.", voice="shared", **SAID).audio
    with Client(url=start_server(VOXCPM_VOICES=str(folder)).grpc_url) as replica:
        assert replica.synthesize("Hello there.", voice="shared", **SAID).audio == expected
        client.remove_voice("shared")
        with pytest.raises(errors.UnknownVoice):
            replica.synthesize("Hello there.", voice="shared", **SAID)
