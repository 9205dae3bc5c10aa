"""The ensemble's steps on a stand-in for Triton: a stream's chunks one after the other, and streams that end early."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serving.fake_triton import FakeBackend, FakeRequest, FakeSender, text
from tests.signature import FOR_THE_ENSEMBLE, REPOSITORY, signature, without
from voxcpm_core.audio.mp3 import Mp3Encoder
from voxcpm_core.chain import step as step_module
from voxcpm_core.chain import upstream as upstream_module
from voxcpm_core.chain.audiovae import READ_FILES, start_audiovae
from voxcpm_core.chain.kept import SILENT_S, KeptStreams
from voxcpm_core.chain.mp3 import Mp3Model, Mp3Part, start_mp3_encoder
from voxcpm_core.chain.step import Step
from voxcpm_core.chain.upstream import Upstream
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.locate import DEMO_FOLDER
from voxcpm_core.checkpoint.read import VAE_FILES, read_vae_tensors
from voxcpm_core.errors import CheckpointError, ConfigError
from voxcpm_core.local.server import LocalServer
from voxcpm_core.serving.tensors import InputTensors
from voxcpm_core.vae import VaeDecoder

RATE = 16_000
NOT_TAKEN = {"format", "stream", "encoding", "retry_badcase", "return_latents", "sample_rate"}
KINDS = ("input_map", "output_map")
ARGS = {"model_instance_kind": "CPU", "model_instance_device_id": "0", "model_config": json.dumps({})}
PCM = np.random.default_rng(3).uniform(-0.5, 0.5, (6, 1280)).astype(np.float32)  # chunks


def inputs(stream_id: str, index: int, is_last: bool, **tensors: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "stream_id": text(stream_id), "chunk_index": np.array([index], np.int32), "is_last": np.array([is_last]),
        "sample_rate": np.array([RATE], np.int32), "bitrate": np.array([64], np.int32), "request_id": text("r1"),
        "finish_reason": text("stop" if is_last else ""), "seed": np.array([7], np.int64), **tensors,
    }


def run(model: Any, given: dict[str, np.ndarray], sender: FakeSender | None = None) -> FakeSender:
    request = FakeRequest(given, sender=sender or FakeSender())
    model.execute([request])
    assert (request.sender.num_finals, request.sender.violations) == (1, [])
    return request.sender


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Streams that the engines were asked to leave."""
    asked: list[str] = []
    monkeypatch.setattr("voxcpm_core.chain.upstream.Upstream.leave", lambda self, stream_id: asked.append(stream_id))
    return asked


@pytest.fixture
def mp3(left: list[str]) -> Mp3Model:
    return start_mp3_encoder({}, FakeBackend(), {})


def encoded(pcm: np.ndarray) -> bytes:
    encoder = Mp3Encoder(RATE, 64)
    return b"".join(encoder.encode(each) for each in pcm) + encoder.finish()


def test_the_ensemble_s_signature_is_that_of_voxcpm_less_what_it_cannot_do():
    (given, made), (own_given, own_made) = signature("voxcpm"), signature("voxcpm_mp3")
    assert own_given == without(given, NOT_TAKEN)
    renamed = [each.replace('"seed"', '"used_seed"') for each in without(made, {"latents", *FOR_THE_ENSEMBLE})]
    assert sorted(own_made) == sorted(renamed)


def test_who_keeps_a_stream_s_state_is_one_instance():
    for model in ("audiovae", "mp3_encoder"):
        assert "instance_group [ { count: 1 kind: KIND_CPU } ]" in (REPOSITORY / model / "config.pbtxt").read_text()


def test_every_step_takes_all_that_the_one_before_gives():
    config = (REPOSITORY / "voxcpm_mp3" / "config.pbtxt").read_text()
    steps = config.split("model_name:")[1:]
    entry = r' { key: "(\w+)" value: "(\w+)" }'
    maps = [{kind: dict(re.findall(kind + entry, step)) for kind in KINDS} for step in steps]
    for before, after in pairwise(maps):
        assert set(before["output_map"].values()) == set(after["input_map"].values())
    for model, step in zip(("voxcpm", "audiovae", "mp3_encoder"), maps, strict=True):
        assert f'"{model}"' in steps[maps.index(step)]
        for kind, lines in zip(KINDS, signature(model), strict=True):
            assert set(step[kind]) <= {each.split('"')[1] for each in lines}


def test_streams_take_turns_and_do_not_mix(mp3: Mp3Model, left: list[str]):
    sent: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    for index in range(len(PCM)):
        for name, pcm in (("a", PCM), ("b", PCM[::-1])):
            chunk = inputs(name, index, index == len(PCM) - 1, pcm=pcm[index])
            sent[name] += run(mp3, chunk).chunks
    for name, pcm in (("a", PCM), ("b", PCM[::-1])):
        assert b"".join(chunk["audio"] for chunk in sent[name]) == encoded(pcm)
        assert [chunk["chunk_index"] for chunk in sent[name]] == list(range(len(sent[name])))
        assert sum(chunk["num_samples"] for chunk in sent[name]) == pcm.size
        assert all(chunk["audio"] for chunk in sent[name])
        assert (sent[name][-1]["is_last"], sent[name][-1]["finish_reason"]) == (True, b"stop")
    assert (len(mp3.streams), left) == (0, [])


def test_who_has_gone_is_told_to_the_engine_and_forgotten(mp3: Mp3Model, left: list[str]):
    run(mp3, inputs("a", 0, False, pcm=PCM[0]))
    sender = FakeSender()
    sender.gone.set()
    assert run(mp3, inputs("a", 1, False, pcm=PCM[1]), sender).errors[0].code == "CANCELLED"
    assert (len(mp3.streams), left) == (0, ["a"])


def test_a_chunk_that_is_missing_or_broken_ends_the_stream_alone(mp3: Mp3Model, left: list[str]):
    for name in ("a", "b", "c"):
        run(mp3, inputs(name, 0, False, pcm=PCM[0]))
    assert "[INTERNAL]" in run(mp3, inputs("a", 2, False, pcm=PCM[2])).errors[0].message
    without = inputs("b", 1, False)
    assert "[INTERNAL]" in run(mp3, without).errors[0].message
    assert "[INTERNAL]" in run(mp3, inputs("b", 2, False, pcm=PCM[1])).errors[0].message
    assert run(mp3, inputs("c", 1, True, pcm=PCM[1])).errors == []
    assert left == ["a", "b", "b"]
    assert len(mp3.streams) == 0


def test_a_stream_without_an_end_is_forgotten(mp3: Mp3Model, monkeypatch: pytest.MonkeyPatch):
    run(mp3, inputs("dead", 0, False, pcm=PCM[0]))
    monkeypatch.setattr(step_module, "FORGOTTEN_S", -1.0)
    run(mp3, inputs("b", 0, True, pcm=PCM[0]))
    assert len(mp3.streams) == 0


@pytest.mark.parametrize("num_context", [0, 3])
def test_the_decoder_alone_gives_the_samples_of_the_whole(left: list[str], num_context: int):
    model = start_audiovae(ARGS, FakeBackend(), {"VOXCPM_MODEL": "demo"})
    config = load_config(DEMO_FOLDER)
    frames = config.patch_size
    rng = np.random.default_rng(5)
    latents = rng.standard_normal((7 * frames, config.feat_dim)).astype(np.float32)
    context = rng.standard_normal((num_context * frames, config.feat_dim)).astype(np.float32)
    pcm = []
    for index, cut in enumerate(np.split(latents, [frames, 3 * frames])):
        first = context if index == 0 else context[:0]
        sender = run(model, inputs("a", index, index == 2, latents=cut, vae_context=first))
        (response,) = sender.responses
        pcm.append(next(each.as_numpy() for each in response.output_tensors if each.name() == "pcm"))
    import torch

    decoder = VaeDecoder.from_tensors(config.vae, read_vae_tensors(DEMO_FOLDER, config))
    whole = decoder.decode_offline(torch.from_numpy(np.concatenate((context, latents))).t().unsqueeze(0))[0].numpy()
    num_unheard = len(whole) * num_context // (num_context + 7)
    np.testing.assert_allclose(np.concatenate(pcm), whole[num_unheard:], atol=1e-5)
    model.close()


def test_who_does_not_use_the_ensemble_pays_no_torch():
    program = "import sys, voxcpm_core.chain.audiovae, voxcpm_core.chain.mp3; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_what_keeps_it_from_loading_is_named(left: list[str]):
    with pytest.raises(ConfigError, match="VOXCPM_MODEL is not set"):
        start_audiovae(ARGS, FakeBackend(), {})
    assert isinstance(start_audiovae(ARGS, FakeBackend(), {"VOXCPM_MODEL": "demo", "VOXCPM_PRELOAD": "1"}).step, Step)


def test_weights_that_are_not_those_of_the_list_are_not_loaded(left: list[str], tmp_path: Path):
    folder, listing = tmp_path / "model", tmp_path / "SHA256SUMS"
    shutil.copytree(DEMO_FOLDER, folder)
    listed = subprocess.check_output("sha256sum *", shell=True, cwd=folder, text=True)
    listing.write_text(listed)
    settings = {"VOXCPM_MODEL": str(folder), "VOXCPM_CHECKSUMS": str(listing)}
    backend = FakeBackend()
    model = start_audiovae(ARGS, backend, settings)
    weights = next(path for path in folder.glob("audiovae.*"))
    weights.write_bytes(weights.read_bytes() + b"\0")
    latents = np.zeros((4, load_config(folder).feat_dim), np.float32)
    sender = run(model, inputs("a", 0, True, latents=latents, vae_context=latents[:0]))
    assert "[INTERNAL]" in sender.errors[0].message, "the first stream would have read them"
    assert any("CheckpointError at checksums.verify_checksums" in line for line in backend.Logger.lines)
    with pytest.raises(CheckpointError, match=rf"{weights.name}: its SHA-256 is"):
        start_audiovae(ARGS, FakeBackend(), settings)
    listing.write_text("".join(line for line in listed.splitlines(keepends=True) if weights.name not in line))
    with pytest.raises(CheckpointError, match=rf"{weights.name}: is not on the list of checksums"):
        start_audiovae(ARGS, FakeBackend(), settings)
    assert {*VAE_FILES, "config.json"} == {*READ_FILES}


def test_the_engines_are_told_by_their_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    told: list[dict[str, Any]] = []

    def take(request: Mapping[str, Any]) -> dict[str, Any]:
        told.append({name: request[name] for name in ("left", "taken")})
        return {"over": []}

    upstream = Upstream(os.getpid(), KeptStreams())
    upstream.leave("nobody is there yet")
    wait_until(lambda: not upstream._left)
    server = LocalServer("voxcpm", {"told": take}, os.getpid(), print)
    upstream.taken("a", 1)
    wait_until(lambda: len(told) == 1)
    server.close()
    upstream.taken("a", 2)
    wait_until(lambda: not upstream._taken)
    again = LocalServer("voxcpm", {"told": take}, os.getpid(), print)
    upstream.leave("b")
    upstream.taken("a", 3)
    upstream.close()
    again.close()
    assert told[0] == {"left": [], "taken": {"a": 1}}
    assert {"b"} == {name for each in told[1:] for name in each["left"]}
    assert {"a": 3} in [each["taken"] for each in told[1:]]


def test_a_silent_stream_is_given_up_when_an_engine_says_that_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(upstream_module, "ASK_S", 0.01)
    asked: list[str] = []

    def answer(request: Mapping[str, Any]) -> dict[str, Any]:
        asked.extend(request["silent"])
        return {"over": [each for each in request["silent"] if each == "cut"]}

    streams = KeptStreams()
    server = LocalServer("voxcpm", {"told": answer}, os.getpid(), print)
    upstream = Upstream(os.getpid(), streams)
    for stream_id in ("cut", "slow", "new"):
        streams.begin(stream_id, Mp3Part(InputTensors(FakeRequest(inputs(stream_id, 0, False)).inputs())))
    for stream_id in ("cut", "slow"):
        kept = streams.get(stream_id)
        assert kept is not None
        kept.used_s -= SILENT_S
    wait_until(lambda: len(streams) == 2 and asked.count("slow") > 1)
    upstream.close()
    server.close()
    assert streams.get("cut") is None
    assert "new" not in asked


def wait_until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.002)
