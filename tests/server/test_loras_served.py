"""Adapters on a real server: one life of a name, while streams run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.checkpoint.lora_folder import make_lora
from tests.noise_voice import NOISE_FOLDER
from tests.server.instance import Instance
from tests.server.wire import GrpcCall, infer_input
from tests.server_process import ADMIN_TOKEN
from voxcpm_client import Client, errors
from voxcpm_client.server import TritonServer, find_repository
from voxcpm_core.checkpoint.load import load_config

pytestmark = pytest.mark.server

ROUNDING = 3  # levels of 16 bits, between batches of different sizes
SAID = {"seed": 5, "max_length": 3, "inference_timesteps": 2}
NUM_PATCHES, MOST_JOINING = 60, 60


@pytest.fixture(scope="module")
def client(triton_server: TritonServer) -> Iterator[Client]:
    with Client(url=triton_server.grpc_url, token=ADMIN_TOKEN, timeout_s=60) as client:
        yield client


@pytest.fixture(scope="module")
def lora_root(triton_server: TritonServer) -> Path:
    """With two adapters."""
    root = triton_server.log_file.parent / "loras"
    for seed, path in enumerate(("one", "two")):
        make_lora(root / path, load_config(NOISE_FOLDER), alpha=2, seed=seed)
    return root


def assert_same(audio: bytes, expected: bytes) -> None:
    found, wanted = (np.frombuffer(each, "<i2").astype(int) for each in (audio, expected))
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= ROUNDING


def test_requests_with_different_adapters_and_without_speak_at_once(
    client: Client, lora_root: Path, triton_server: TritonServer
):
    for path in ("one", "two"):
        added = client.register_lora(f"the {path}", path)
        assert (added.name, added.rank, added.source) == (f"the {path}", 4, path)
    assert [each.name for each in client.loras()] == ["the one", "the two"]
    names = [None, "the one", "the two"]
    alone = [client.synthesize("Hello there.", lora=name, **SAID).audio for name in names]
    assert len(set(alone)) == 3

    async def all_at_once() -> list[bytes]:
        async with Client(url=client.url, timeout_s=60) as own:
            said = await asyncio.gather(*(own.asynthesize("Hello there.", lora=name, **SAID) for name in names * 3))
            return [speech.audio for speech in said]

    for said, expected in zip(asyncio.run(all_at_once()), alone * 3, strict=True):
        assert_same(said, expected)
    inputs = {"target_text": "Hello there.", "lora": "the two", **SAID}
    with grpcclient.InferenceServerClient(triton_server.grpc_url) as grpc:
        answer = grpc.infer("voxcpm_blocking", [infer_input(name, value) for name, value in inputs.items()])
    assert_same(answer.as_numpy("audio")[0], alone[2])
    for path in ("one", "two"):
        client.unregister_lora(f"the {path}")


def test_eight_adapters_share_each_launch(start_server: Callable[..., TritonServer], tmp_path: Path):
    names = [f"adapter {number}" for number in range(8)]
    for seed, name in enumerate(names):
        make_lora(tmp_path / "loras" / name, load_config(NOISE_FOLDER), alpha=2, seed=seed)
    settings = {"VOXCPM_LORA_ROOT": str(tmp_path / "loras"), "VOXCPM_MAX_LORAS": "8"}
    server = start_server(repository=find_repository(), VOXCPM_ADMIN_TOKEN=ADMIN_TOKEN, **settings)
    with Instance(server) as instance, Client(url=server.grpc_url, token=ADMIN_TOKEN) as client:
        for name in names:
            client.register_lora(name, name)
        whole = SAID | {"max_length": NUM_PATCHES, "ignore_stop": True, "length_cap": False}
        calls = [GrpcCall(server, {"target_text": "Hello there.", "lora": name, **whole}) for name in names]
        before = instance.status()
        said = [call.finish() for call in calls]
        after = instance.status()
    assert [each.errors for each in said] == [[]] * 8
    assert len({each.audio for each in said}) == 8, "each has its own"
    num_steps = after["num_steps"] - before["num_steps"]
    assert num_steps <= NUM_PATCHES + MOST_JOINING, "one after another they take eight times as many"
    assert after["num_dit_calls"] - before["num_dit_calls"] == num_steps, "two timesteps are one evaluation, of all"


def test_an_unregistered_name_is_unknown_and_its_stream_goes_on(client: Client, lora_root: Path):
    client.register_lora("brief", "one")
    whole = client.synthesize("On and on.", lora="brief", seed=1, max_length=12, ignore_stop=True)
    stream = client.stream("On and on.", lora="brief", seed=1, max_length=12, ignore_stop=True)
    with closing(stream) as chunks:
        heard = [next(chunks)]
        client.unregister_lora("brief")
        with pytest.raises(errors.UnknownLora, match="there is no adapter 'brief'"):
            client.synthesize("Hello.", lora="brief")
        client.register_lora("brief", "two")
        assert client.synthesize("Hello.", lora="brief", **SAID).num_samples > 0
        heard += chunks
    client.unregister_lora("brief")
    assert_same(b"".join(chunk.audio for chunk in heard), whole.audio)


def test_refusals_are_typed(client: Client, lora_root: Path):
    client.register_lora("taken", "one")
    with pytest.raises(errors.AlreadyExists, match="the adapter 'taken' exists"):
        client.register_lora("taken", "two")
    for token in ("wrong", None):
        with pytest.raises(errors.Forbidden), Client(url=client.url, token=token or "") as stranger:
            stranger.unregister_lora("taken")
    client.unregister_lora("taken")
    with pytest.raises(errors.UnknownLora):
        client.unregister_lora("taken")
    for path in ("..", "/etc", "missing", "one/lora_config.json"):
        with pytest.raises(errors.InvalidParameter, match="there is no folder") as caught:
            client.register_lora("bad", path)
        assert str(lora_root) not in str(caught.value)
    with pytest.raises(errors.InvalidParameter, match="sha256: the weights have"):
        client.register_lora("bad", "one", sha256="0" * 64)
    (lora_root / "torn").mkdir()
    for file in (lora_root / "one").iterdir():
        (lora_root / "torn" / file.name).write_bytes(file.read_bytes()[:2000])
    with pytest.raises(errors.InvalidParameter, match="truncated"):
        client.register_lora("bad", "torn")
    with pytest.raises(errors.ConflictingInputs, match="either a path or a uri"):
        client.register_lora("bad")
    assert client.loras() == []


@pytest.mark.parametrize("model", ["voxcpm", "voxcpm_mp3"])
def test_a_name_reaches_the_engine_through_every_model(triton_server: TritonServer, model: str):
    answer = GrpcCall(triton_server, {"target_text": "Hello.", "lora": "nobody"}, model=model).finish()
    assert answer.code == "UNKNOWN_LORA"


def test_asyncio_twins(client: Client, lora_root: Path):
    async def live() -> None:
        async with Client(url=client.url, token=ADMIN_TOKEN, timeout_s=60) as own:
            await own.aregister_lora("twin", "two")
            assert [each.name for each in await own.aloras()] == ["twin"]
            await own.aunregister_lora("twin")

    asyncio.run(live())
