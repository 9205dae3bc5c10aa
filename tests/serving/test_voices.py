"""Requests with a registered voice, registering one, and the rest of what an instance does over its socket."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.serving.fake_triton import FakeRequest, text
from tests.serving.loaded import Loaded
from tests.serving.served import GENEROUS_S, MODEL, speech, wav_bytes
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.local.client import LocalClient
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import EngineRequest
from voxcpm_core.voices import Voice, VoiceStore

V1 = ModelConfig.from_json(tiny_config("1.5"))
WAV = wav_bytes(3990)  # not whole patches


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "voices"


@pytest.fixture
def loaded(tokenizer: TextTokenizer, folder: Path) -> Iterator[Loaded]:
    loaded = Loaded(tokenizer, voices=str(folder), max_running=4, max_waiting=2)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def shared(tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    """One instance for many refusals, since starting one starts processes."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        loaded = Loaded(tokenizer, voices=str(folder / "voices"))
        yield loaded
        loaded.close()


def same(one: EngineRequest, other: EngineRequest) -> bool:
    def plain(request: EngineRequest) -> dict[str, Any]:
        conditions = {role: getattr(request, role) for role in ("prompt", "reference")}
        latents = {role: None if each is None else each.latents.tolist() for role, each in conditions.items()}
        return {**dataclasses.asdict(dataclasses.replace(request, prompt=None, reference=None)), **latents}

    return plain(one) == plain(other)


def padded_latents(loaded: Loaded, role: str) -> np.ndarray:
    answer = loaded.ask("encode", audio=WAV, role=role)
    assert answer["encoder_sample_rate"] == MODEL.vae.encoder_sample_rate
    return np.frombuffer(answer["latents"], "<f4").reshape(-1, answer["feat_dim"])


@pytest.mark.parametrize("roles", [("prompt",), ("reference",), ("prompt", "reference")])
def test_a_voice_of_audio_is_the_request_with_its_latents(loaded: Loaded, roles: tuple[str, ...]):
    words = {"prompt_text": "so it begins "} if "prompt" in roles else {}
    added = loaded.ask("add_voice", name="anna", **words, **{f"{role}_audio": WAV for role in roles})
    assert (added["name"], added["kind"], added["instance"]) == ("anna", "both" if len(roles) == 2 else roles[0],
                                                                  "voxcpm_0")
    inputs = {f"{role}_latents": padded_latents(loaded, role) for role in roles}
    inputs |= {name: text(value) for name, value in words.items()}
    by_name, by_latents = loaded.say(voice=text("anna")), loaded.say(**inputs)
    assert by_name.errors == by_latents.errors == []
    assert same(*loaded.engine.submitted)
    assert [chunk["audio"] for chunk in by_name.chunks] == [chunk["audio"] for chunk in by_latents.chunks]


def test_a_prompt_is_filled_up_on_its_left_and_a_reference_on_its_right(loaded: Loaded):
    prompt, reference = (padded_latents(loaded, role) for role in ("prompt", "reference"))
    assert not np.array_equal(prompt, reference)
    assert len(prompt) == len(reference)
    assert not prompt[0].any()
    assert not reference[-1].any()
    assert loaded.code_of("encode", audio=WAV, role="lead") is ErrorCode.INVALID_PARAMETER
    assert loaded.code_of("encode", audio=b"no audio", role="prompt") is ErrorCode.INVALID_AUDIO


def test_a_voice_of_latents_and_its_life(loaded: Loaded):
    latents = np.random.default_rng(1).standard_normal((2 * MODEL.patch_size, MODEL.feat_dim), dtype=np.float32)
    fields = {"prompt_text": "words", "prompt_latents": latents.tobytes()}
    drawn = loaded.ask("add_voice", **fields)["name"]
    assert loaded.ask("add_voice", name="b", **fields)["name"] == "b"
    assert [each["name"] for each in loaded.ask("voices")["voices"]] == sorted(["b", drawn])
    assert loaded.code_of("add_voice", name="b", **fields) is ErrorCode.ALREADY_EXISTS
    loaded.say(voice=text(drawn))
    np.testing.assert_array_equal(loaded.engine.submitted[-1].prompt.latents, latents)
    assert loaded.ask("remove_voice", name=drawn)["name"] == drawn
    assert loaded.code_of("remove_voice", name=drawn) is ErrorCode.UNKNOWN_VOICE
    (error,) = loaded.say(voice=text(drawn)).errors
    assert (error.message, error.code) == (f"[UNKNOWN_VOICE] request r1: there is no voice '{drawn}'", "NOT_FOUND")


def sound(seconds: float, peak: float = 0.5) -> bytes:
    buffer = io.BytesIO()
    rate = 8000
    samples = peak * np.sin(np.arange(int(seconds * rate)) * 0.1)
    soundfile.write(buffer, samples, rate, format="WAV", subtype="FLOAT")
    return buffer.getvalue()


FRAMES = np.ones((MODEL.patch_size, MODEL.feat_dim), np.float32)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "CONFLICTING_INPUTS"),
        ({"prompt_text": "words"}, "CONFLICTING_INPUTS"),
        ({"prompt_audio": WAV}, "CONFLICTING_INPUTS"),
        ({"prompt_audio": WAV, "prompt_text": "  "}, "CONFLICTING_INPUTS"),
        ({"prompt_text": "words", "reference_audio": WAV}, "CONFLICTING_INPUTS"),
        ({"reference_audio": WAV, "reference_latents": FRAMES.tobytes()}, "CONFLICTING_INPUTS"),
        ({"prompt_audio": WAV, "prompt_text": "word " * 5000}, "TOO_LARGE"),
        ({"prompt_audio": WAV, "prompt_text": 5}, "INVALID_PARAMETER"),
        ({"reference_audio": sound(1.0, peak=0.0)}, "INVALID_AUDIO"),
        ({"reference_audio": sound(600.0)}, "INVALID_AUDIO"),
        ({"reference_audio": sound(0.0)}, "INVALID_AUDIO"),
        ({"reference_audio": b"not audio"}, "INVALID_AUDIO"),
        ({"reference_latents": b"odd"}, "INVALID_LATENTS"),
        ({"reference_latents": b""}, "INVALID_LATENTS"),
        ({"reference_latents": FRAMES.tobytes()[:-4]}, "INVALID_LATENTS"),
        ({"reference_latents": (FRAMES * np.nan).tobytes()}, "INVALID_LATENTS"),
        ({"reference_latents": np.tile(FRAMES, (5000, 1)).tobytes()}, "TOO_LARGE"),
        ({"name": "x" * 65, "reference_audio": WAV}, "INVALID_PARAMETER"),
        ({"name": 7, "reference_audio": WAV}, "INVALID_PARAMETER"),
        ({"name": "a\nb", "reference_audio": WAV}, "INVALID_PARAMETER"),
    ],
)
def test_bad_voices_leave_nothing(shared: Loaded, fields: dict[str, Any], code: str):
    assert shared.code_of("add_voice", **fields).value == code
    assert not Path(shared.engine.config.voices).exists()


def test_a_tenth_of_a_second_is_a_voice(loaded: Loaded):
    assert loaded.ask("add_voice", name="short", reference_audio=sound(0.1))["seconds"] > 0.09


def test_a_voice_is_refused_that_no_request_could_use(tokenizer: TextTokenizer, folder: Path):
    loaded = Loaded(tokenizer, voices=str(folder), max_model_len=64)
    long = sound(64 * MODEL.encoder_samples_per_patch / MODEL.vae.encoder_sample_rate)
    assert loaded.code_of("add_voice", reference_audio=long) is ErrorCode.TOO_LARGE
    loaded.close()


def test_latents_may_be_as_long_as_audio(tokenizer: TextTokenizer, folder: Path):
    loaded = Loaded(tokenizer, voices=str(folder), max_audio_seconds=1)
    most_patches = MODEL.vae.encoder_sample_rate // MODEL.encoder_samples_per_patch
    longest = np.tile(FRAMES, (most_patches, 1)).tobytes()
    assert loaded.code_of("add_voice", reference_latents=longest + FRAMES.tobytes()) is ErrorCode.INVALID_LATENTS
    assert loaded.ask("add_voice", reference_latents=longest)["seconds"] == 1.0
    loaded.close()


def test_without_a_folder_voices_are_refused(tokenizer: TextTokenizer, folder: Path):
    loaded = Loaded(tokenizer)
    with pytest.raises(RequestError, match="VOXCPM_VOICES is not set"):
        loaded.ask("add_voice", reference_audio=WAV)
    assert loaded.ask("voices")["voices"] == []
    assert loaded.say(voice=text("anna")).errors[0].code == "NOT_FOUND"
    loaded.close()


def test_a_model_of_another_generation_refuses_the_voice_and_references(tokenizer: TextTokenizer, folder: Path):
    VoiceStore(str(folder), 10, 10).add(Voice.make("two", MODEL, None, "", FRAMES))
    first = Loaded(tokenizer, V1, voices=str(folder))
    (error,) = first.say(voice=text("two")).errors
    assert error.message.startswith("[INVALID_PARAMETER] request r1: the voice 'two' is one of another model (voxcpm2,")
    assert first.code_of("add_voice", reference_audio=WAV) is ErrorCode.INVALID_PARAMETER
    first.ask("add_voice", name="one", prompt_audio=WAV, prompt_text="words")
    assert first.say(voice=text("one")).errors == []
    first.close()


def test_a_removed_voice_s_stream_goes_on(tokenizer: TextTokenizer, folder: Path):
    loaded = Loaded(tokenizer, step_s=0.02, voices=str(folder))
    loaded.ask("add_voice", name="anna", reference_audio=WAV)
    running = speech("running", patches=9, voice=text("anna"))
    loaded.instance.execute([running])
    loaded.ask("remove_voice", name="anna")
    assert loaded.say(voice=text("anna")).errors[0].code == "NOT_FOUND"
    assert running.sender.final.wait(GENEROUS_S)
    assert running.sender.errors == []
    assert sum(chunk["num_samples"] for chunk in running.sender.chunks) == 9 * MODEL.samples_per_patch
    loaded.close()


def endless(request_id: str) -> FakeRequest:
    return speech(request_id, patches=4000, length_cap=np.array([False]))


def test_queue_and_cancel_by_id(tokenizer: TextTokenizer, folder: Path):
    loaded = Loaded(tokenizer, step_s=0.01, max_running=1, max_waiting=2)
    requests = [endless(name) for name in ("first", "twice", "twice")]
    loaded.instance.execute(requests)
    first, *twice = requests
    queue = loaded.ask("queue")
    while "first" in queue["waiting"]:  # not admitted yet
        queue = loaded.ask("queue")
    assert (queue["waiting"], queue["depth"], queue["model"]) == (["twice", "twice"], 2, "voxcpm")
    assert loaded.ask("cancel", request_id="nobody")["cancelled"] == 0
    assert loaded.ask("cancel", request_id="twice")["cancelled"] == 2
    for request in twice:
        assert request.sender.final.wait(GENEROUS_S)
        assert request.sender.errors[0].message == "[CANCELLED] request twice: cancelled by its id"
    assert loaded.ask("queue")["waiting"] == []
    assert loaded.ask("cancel", request_id="twice")["cancelled"] == 0
    assert loaded.ask("cancel", request_id="first")["cancelled"] == 1
    assert first.sender.final.wait(GENEROUS_S)
    assert loaded.code_of("cancel") is ErrorCode.INVALID_PARAMETER
    loaded.close()


def test_info(loaded: Loaded):
    info = loaded.ask("info")
    assert (info["model"], info["architecture"], info["contract_version"]) == ("voxcpm", "voxcpm2", 1)
    assert (info["feat_dim"], info["patch_size"]) == (MODEL.feat_dim, MODEL.patch_size)
    assert (info["sample_rate"], info["encoder_sample_rate"]) == (MODEL.vae.sample_rate, MODEL.vae.encoder_sample_rate)
    assert info["mp3_delay_samples"] == 1105
    assert {"wav", "mp3", "opus"} <= set(info["formats"])
    assert info["limits"]["max_running"] == 4


def rounds(loaded: Loaded, client: LocalClient, count: int) -> None:
    first = None
    for _ in range(count):
        client.ask("add_voice", name="round", reference_latents=FRAMES.tobytes())
        sender = loaded.say(voice=text("round"))
        client.ask("remove_voice", name="round")
        loaded.forget()
        assert sender.errors == []
        audio = [chunk["audio"] for chunk in sender.chunks]
        first = first or audio
        assert audio == first


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize(
    ("count", "growth_kib"), [(200, 4096), pytest.param(10_000, 16_384, marks=pytest.mark.soak)]  # as in the long soak
)
def test_rounds_of_registering_and_removing_leave_memory_flat(
    loaded: Loaded, folder: Path, count: int, growth_kib: int
):
    rounds(loaded, loaded.client, 20)
    before = resident_kib()
    rounds(loaded, loaded.client, count)
    assert resident_kib() - before < growth_kib
    assert len(loaded.instance._adapter.roster._places) <= 1, "who was answered is forgotten"
    assert list(folder.iterdir()) == []
