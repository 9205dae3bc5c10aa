"""`voxcpm_control` on engines without a model."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.lora_folder import make_lora
from tests.control.conftest import TOKEN, Fleet, Light, Settled
from tests.lora.adapters import ref_of
from tests.serving.fake_triton import FakeRequest, FakeSender, text
from tests.serving.served import GENEROUS_S, MODEL, speech, wav_bytes
from voxcpm_core.control.models import start_control
from voxcpm_core.control.operations import OPERATIONS
from voxcpm_core.control.unary import MAX_INSIDE
from voxcpm_core.errors import ConfigError

WAV = base64.b64encode(wav_bytes()).decode()
LATENTS = np.ones((MODEL.patch_size, MODEL.feat_dim), np.float32)


def test_the_life_of_a_voice(fleet: Fleet):
    loaded, control = fleet.load(), fleet.control()
    added = control.ask("add_voice", token=TOKEN, name="anna", reference_audio_base64=WAV)
    assert (added["name"], added["kind"], added["made_for"].split(",")[0]) == ("anna", "reference", "voxcpm2")
    assert added["instances"] == [{"model": "voxcpm", "version": "1", "instance": "voxcpm_0"}]
    drawn = control.ask(
        "add_voice", token=TOKEN, prompt_text="words", model="voxcpm",
        prompt_latents_base64=base64.b64encode(LATENTS.tobytes()).decode(),
    )["name"]
    (first, second) = control.ask("voices")["voices"]
    assert {first["name"], second["name"]} == {"anna", drawn}
    assert set(first) == {"name", "kind", "seconds", "created", "made_for"}
    assert loaded.say(voice=text("anna")).errors == []
    assert control.code_of("add_voice", token=TOKEN, name="anna", reference_audio_base64=WAV) == "ALREADY_EXISTS"
    assert control.ask("remove_voice", token=TOKEN, name="anna")["name"] == "anna"
    refused = control.refused("remove_voice", token=TOKEN, name="anna")
    assert (refused.code, refused.message[:15]) == ("NOT_FOUND", "[UNKNOWN_VOICE]")


def test_the_life_of_an_adapter(fleet: Fleet, tmp_path: Path):
    make_lora(tmp_path / "loras" / "low", MODEL)
    loaded, control = fleet.load(lora_root=str(tmp_path / "loras")), fleet.control()
    added = control.ask("register_lora", token=TOKEN, name="anna", path="low")
    assert (added["name"], added["rank"], added["source"]) == ("anna", 4, "low")
    assert added["instances"] == [{"model": "voxcpm", "version": "1", "instance": "voxcpm_0"}]
    assert [each["name"] for each in control.ask("loras")["loras"]] == ["anna"]
    assert loaded.say(lora=text("anna")).errors == []
    assert loaded.engine.submitted[-1].lora == ref_of(tmp_path / "loras", "low", name="anna")
    assert control.code_of("register_lora", token=TOKEN, name="anna", path="low") == "ALREADY_EXISTS"
    assert control.code_of("register_lora", token=TOKEN, name="b", path="..") == "INVALID_PARAMETER"
    assert control.ask("unregister_lora", token=TOKEN, name="anna")["name"] == "anna"
    refused = control.refused("unregister_lora", token=TOKEN, name="anna")
    assert (refused.code, refused.message[:14]) == ("NOT_FOUND", "[UNKNOWN_LORA]")
    assert loaded.say(lora=text("anna")).errors[0].message.endswith("there is no adapter 'anna'")
    without = fleet.load(name="other", instance="other_0")
    assert without.say(lora=text("anna")).errors[0].code == "NOT_FOUND"
    assert control.code_of("register_lora", token=TOKEN, name="b", path="low", model="other") == "INVALID_PARAMETER"


def test_answers_are_per_instance_and_in_total(fleet: Fleet):
    for index in range(2):
        fleet.load(instance=f"voxcpm_{index}", max_running=2 + index)
    fleet.load(name="other", instance="other_0", version="2", max_running=7)
    control = fleet.control()
    status = control.ask("status")
    assert {each["instance"] for each in status["instances"]} == {"voxcpm_0", "voxcpm_1", "other_0"}
    assert (status["max_running"], status["running"], status["utilization_pct"]) == (12, 0, 0.0)
    assert (status["ready"], status["draining"]) == (True, False)
    assert control.ask("status", model="voxcpm")["max_running"] == 5
    assert control.ask("status", instance="voxcpm_1")["max_running"] == 3
    assert control.ask("status", version="2")["instances"][0]["model"] == "other"
    assert control.code_of("status", version="9") == "NOT_READY"
    info = control.ask("info", model="voxcpm")
    assert (info["architecture"], info["model"], info["contract_version"]) == ("voxcpm2", "voxcpm", 1)
    assert "instance" not in info, "only what all have in common"
    assert [each["limits"]["max_running"] for each in info["instances"]] in ([2, 3], [3, 2])
    assert control.ask("info", model="other")["limits"]["max_running"] == 7
    refused = control.refused("voices")
    assert refused.message.endswith("model: several are loaded (other, voxcpm); name one")
    assert control.ask("voices", model="other")["voices"] == []


def test_queue_and_cancel_reach_every_instance_while_it_is_full(fleet: Fleet):
    engines = [fleet.load(instance=f"i{index}", step_s=0.01, max_running=1, max_waiting=1) for index in range(2)]
    control = fleet.control()
    requests = [speech(name, patches=4000, length_cap=np.array([False])) for name in ("runs", "waits")]
    requests += [speech(name, patches=4000, length_cap=np.array([False])) for name in ("waits", "last")]
    engines[0].instance.execute(requests[:2])
    engines[1].instance.execute(requests[2:])
    until = time.monotonic() + GENEROUS_S
    while (queue := control.ask("queue", token=TOKEN))["depth"] != 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert sorted(queue["waiting"]) == ["last", "waits"]
    assert sorted(len(each["waiting"]) for each in queue["instances"]) == [1, 1]
    start_s = time.monotonic()
    assert control.ask("status")["running"] == 2
    assert time.monotonic() - start_s < 1.0
    assert control.ask("cancel", request_id="waits")["cancelled"] == 2
    for request in (requests[1], requests[2]):
        assert request.sender.final.wait(GENEROUS_S)
        assert request.sender.errors[0].message == "[CANCELLED] request waits: cancelled by its id"
    assert control.ask("cancel", request_id="waits")["cancelled"] == 0


def test_drain_reaches_every_instance_of_its_model_and_no_other(fleet: Fleet):
    own = [fleet.load(instance=f"i{index}", step_s=0.01) for index in range(2)]
    other = fleet.load(name="other", instance="other_0")
    control, encode = fleet.control(), fleet.encode()
    running = speech("runs", patches=4000, length_cap=np.array([False]))
    own[0].instance.execute([running])
    answer = control.ask("drain", token=TOKEN, model="voxcpm", deadline_ms=60_000)
    assert (answer["open"], len(answer["instances"])) == (1, 2)
    status = control.ask("status", model="voxcpm")
    assert (status["draining"], status["ready"], status["open"], status["running"]) == (True, False, 1, 1)
    for each in own:
        assert "[DRAINING]" in each.say().errors[0].message
    assert other.say().errors == []
    assert control.ask("status", model="other")["ready"]
    refused = encode.run({"audio": text(wav_bytes()), "model": text("voxcpm")}).errors[0]
    assert (refused.code, refused.message[:10]) == ("UNAVAILABLE", "[DRAINING]")
    assert refused.message.endswith("retry after 1000 ms")
    assert control.code_of("add_voice", token=TOKEN, model="voxcpm", reference_audio_base64=WAV) == "DRAINING"
    assert control.ask("drain", token=TOKEN, model="voxcpm", deadline_ms=0)["open"] <= 1
    assert running.sender.final.wait(GENEROUS_S)
    assert "[DRAINING] request runs: not finished" in running.sender.errors[0].message


CHANGING = ("queue", "add_voice", "remove_voice", "register_lora", "unregister_lora", "drain")


def test_changing_operations_need_the_token(fleet: Fleet):
    fleet.load()
    control, closed, without = fleet.control(), fleet.control(open_cancel="0"), fleet.control({})
    assert sorted(op for op, each in OPERATIONS.items() if each.needs_token) == sorted(CHANGING)
    for op in CHANGING:
        for wrong in ({}, {"token": ""}, {"token": "s3cret"}, {"token": "ü\ud800"}):
            refused = control.refused(op, **wrong).message
            assert refused.startswith("[FORBIDDEN]")
            assert refused.endswith("admin token, as its field token; the client takes it from VOXCPM_ADMIN_TOKEN")
            assert "VOXCPM_ADMIN_TOKEN is not set" in without.refused(op, **wrong).message
    assert control.refused("queue").code == "INVALID_ARG"
    assert control.ask("queue", token=TOKEN)["depth"] == 0
    assert closed.code_of("cancel", request_id="x") == "FORBIDDEN"
    assert closed.ask("cancel", request_id="x", token=TOKEN)["cancelled"] == 0
    for light in (control, closed, without):
        assert light.ask("status", token="whatever")["running"] == 0
        assert not any("s3cret" in line for line in light.backend.Logger.lines)


def test_the_token_may_stand_in_the_configuration_and_is_never_shown(fleet: Fleet):
    fleet.load()
    control = fleet.control({}, admin_token=TOKEN)
    assert control.ask("queue", token=TOKEN)["depth"] == 0
    assert TOKEN not in control.refused("queue", token=TOKEN + "x").message
    with pytest.raises(ConfigError, match="'admin_tokn'") as caught:
        fleet.control({}, admin_tokn=TOKEN)
    assert TOKEN not in str(caught.value)
    with pytest.raises(ConfigError, match="open_cancel: expected 0 or 1"):
        fleet.control({"VOXCPM_OPEN_CANCEL": "no"})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "expected a JSON object"),
        (b"[]", "expected a JSON object"),
        (b"\xff", "expected a JSON object"),
        (b"[" * 100_000, "expected a JSON object"),
        (b"{}", f"op: expected one of {', '.join(sorted(OPERATIONS))}, got None"),
        (b'{"op": "drian"}', "got 'drian'"),
        (b'{"op": ["status"]}', "got ['status']"),
        (b'{"op": "status", "modle": "x"}', "status: unknown field 'modle'"),
        (b'{"op": "status", "model": 5}', "model: expected a text"),
        (b'{"op": "drain", "token": "s3cret-token", "deadline_ms": "5"}', "deadline_ms: expected an integer, got '5'"),
        (b'{"op": "drain", "token": "s3cret-token", "deadline_ms": true}', "expected an integer, got True"),
        (b'{"op": "drain", "token": "s3cret-token", "deadline_ms": -1}', "an integer from 0 to 2147483647, got -1"),
        (b'{"op": "cancel"}', "request_id: expected a text, got None"),
        (b'{"op": "cancel", "request_id": 5}', "request_id: expected a text"),
        (b'{"op": "cancel", "request_id": "%s"}' % (b"x" * 200_000), "at most 100000 characters"),
    ],
)
def test_bad_requests_are_named(settled: Settled, body: bytes, words: str):
    (error,) = settled.control.run({"request": text(body)}).errors
    assert error.message.startswith("[INVALID_PARAMETER] request r1: ")
    assert words in error.message


@pytest.mark.parametrize("value", ["%%%", "é", 5, "abc"])
def test_what_is_no_base64(settled: Settled, value: object):
    for part, code in (("audio", "INVALID_AUDIO"), ("latents", "INVALID_LATENTS")):
        assert settled.control.code_of("add_voice", token=TOKEN, **{f"reference_{part}_base64": value}) == code
    assert not settled.voices.exists()


def test_odd_inputs_and_parameters(fleet: Fleet):
    control = fleet.control()
    assert "request is missing" in control.run({}).errors[0].message
    empty = control.run({"request": np.array([], np.object_)}).errors[0]
    assert empty.message.startswith("[INVALID_PARAMETER]")
    unknown = control.run({"request": text("{}")}, parameter_values={"tokn": "x"}).errors[0]
    assert "'tokn'" in unknown.message


def test_without_an_engine_it_is_not_ready(fleet: Fleet):
    control = fleet.control()
    refused = control.refused("status")
    assert (refused.code, refused.message.split()[0]) == ("UNAVAILABLE", "[NOT_READY]")
    assert refused.message.endswith("no engine can be reached, retry after 1000 ms")
    loaded = fleet.load()
    assert control.ask("status")["ready"] is True
    loaded.close()
    assert control.code_of("status") == "NOT_READY"


def test_a_wrong_name_is_no_reason_to_try_again_and_a_model_that_is_not_there_now_is(fleet: Fleet):
    control, encode, blocking = fleet.control(), fleet.encode(), fleet.blocking()

    def refusals(model: str) -> list[str]:
        named = {"model": text(model)}
        senders = [encode.run({"audio": text(wav_bytes()), **named}), blocking.run({"target_text": text("x"), **named})]
        return [control.refused("status", model=model).message, *(each.errors[0].message for each in senders)]

    not_ready = "[NOT_READY] request r1: no engine can be reached with model 'voxcpm', retry after 1000 ms"
    assert refusals("voxcpm") == [not_ready] * 3, "before any model was begun to load no name is known to be wrong"
    loaded = fleet.load()
    assert refusals("voxcmp") == ["[INVALID_PARAMETER] request r1: model: no engine is called 'voxcmp'"] * 3
    half = control.refused("status", model="\ud83d").message  # of a pair of surrogates, as JSON may have it
    assert half == r"[INVALID_PARAMETER] request r1: model: no engine is called '\ud83d'"
    loaded.close()
    assert refusals("voxcpm") == [not_ready] * 3


def test_too_many_at_once_are_refused_and_the_others_answered(fleet: Fleet):
    loaded, control = fleet.load(), fleet.control()
    lock = loaded.instance._adapter.voices._add_lock
    requests = []
    with lock:  # so that every one of them blocks
        for index in range(MAX_INSIDE + 1):
            body = {"op": "add_voice", "token": TOKEN, "reference_latents_base64": base64.b64encode(LATENTS).decode()}
            request = FakeRequest({"request": text(json.dumps(body))}, id=f"r{index}", sender=FakeSender(is_unary=True))
            control.model.execute([request])
            requests.append(request)
        assert requests[-1].sender.final.wait(GENEROUS_S)
        assert requests[-1].sender.errors[0].message.startswith("[OVERLOADED]")
    for request in requests[:-1]:
        assert request.sender.final.wait(2 * GENEROUS_S)
        assert request.sender.errors == []
    assert len(control.ask("voices")["voices"]) == MAX_INSIDE


def test_encoding(fleet: Fleet):
    loaded, encode = fleet.load(), fleet.encode()
    data = wav_bytes(3990)
    for role in ("prompt", "reference"):
        outputs = encode.run({"audio": text(data), "role": text(role)})
        latents = outputs.chunks[0]["latents"]
        expected = np.frombuffer(loaded.ask("encode", audio=data, role=role)["latents"], "<f4")
        np.testing.assert_array_equal(latents, expected.reshape(-1, MODEL.feat_dim))
        assert outputs.chunks[0]["sample_rate"] == MODEL.vae.encoder_sample_rate
    as_text = encode.run({"audio": text(base64.encodebytes(data)), "encoding": text("base64")})
    by_default = encode.run({"audio": text(data), "model": text("voxcpm")})
    np.testing.assert_array_equal(as_text.chunks[0]["latents"], by_default.chunks[0]["latents"])


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({}, "INVALID_AUDIO"),
        ({"audio": text(b"")}, "INVALID_AUDIO"),
        ({"audio": text(b"no audio")}, "INVALID_AUDIO"),
        ({"audio": text("%%"), "encoding": text("base64")}, "INVALID_AUDIO"),
        ({"audio": text(b"x"), "encoding": text("hex")}, "INVALID_PARAMETER"),
        ({"audio": text(b"x"), "role": text("lead")}, "INVALID_PARAMETER"),
        ({"audio": text(b"x"), "model": text("nobody")}, "INVALID_PARAMETER"),
    ],
)
def test_what_cannot_be_encoded(settled: Settled, inputs: dict[str, np.ndarray], code: str):
    (error,) = settled.encode.run(inputs).errors
    assert error.message.startswith(f"[{code}] request r1: ")


def test_the_light_models_need_no_torch_and_name_a_bad_setting(fleet: Fleet):
    program = "import sys, voxcpm_core.control.models, voxcpm_core.control.blocking; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
    with pytest.raises(ConfigError, match="unknown parameter 'tokens'"):
        Light(start_control, {}, {"tokens": "x"})
