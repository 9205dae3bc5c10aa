"""The adapter on an engine without a model: real parsing, preparation, encoding, threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.serving.fake_triton import text
from tests.serving.served import GENEROUS_S, MODEL, Served, speech, wav_bytes
from voxcpm_core.text.tokenizer import TextTokenizer


def test_a_stream(serve: Callable[..., Served]):
    sender = serve().run(speech(seed=np.array([5], np.int64)))
    chunks = sender.chunks
    assert [chunk["chunk_index"] for chunk in chunks] == list(range(len(chunks)))
    assert sum(len(chunk["audio"]) for chunk in chunks) == 2 * 9 * MODEL.samples_per_patch
    assert all(len(chunk["audio"]) == 2 * chunk["num_samples"] for chunk in chunks)
    assert {chunk["seed"] for chunk in chunks} == {5}
    assert {chunk["request_id"] for chunk in chunks} == {b"r1"}
    assert {chunk["sample_rate"] for chunk in chunks} == {MODEL.vae.sample_rate}
    assert chunks[-1]["finish_reason"] == b"length"
    assert not any("latents" in chunk for chunk in chunks)


def test_stream_false_gives_one_response_of_the_same_bytes(serve: Callable[..., Served]):
    served, seed = serve(), np.array([5], np.int64)
    streamed = served.run(speech(seed=seed))
    whole = served.run(speech(seed=seed, stream=np.array([False])))
    assert len(whole.responses) == 1
    assert whole.chunks[0]["audio"] == b"".join(chunk["audio"] for chunk in streamed.chunks)


def test_ids_and_seeds_are_drawn_when_absent(serve: Callable[..., Served]):
    served = serve()
    first, second = served.run(speech("")), served.run(speech(""))
    ids = {first.chunks[0]["request_id"], second.chunks[0]["request_id"]}
    assert len(ids) == 2
    assert all(each.startswith(b"vx-") for each in ids)
    seeds = {first.chunks[0]["seed"], second.chunks[0]["seed"]}
    assert len(seeds) == 2
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_latents_alone(serve: Callable[..., Served]):
    request = speech()
    request.output_names = ("latents", "is_last")
    chunks = serve().run(request).chunks
    assert np.concatenate([chunk["latents"] for chunk in chunks]).shape == (9 * MODEL.patch_size, MODEL.feat_dim)
    assert not any("audio" in chunk for chunk in chunks)


def test_prompt_and_reference_audio_reach_the_engine(serve: Callable[..., Served]):
    audio = text(wav_bytes())
    sender = serve().run(speech(prompt_audio=audio, prompt_text=text("before"), reference_audio=audio))
    assert sender.errors == []


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"target_text": text("  \n ")}, "INVALID_TEXT"),
        ({"reference_audio": text(b"not audio at all")}, "INVALID_AUDIO"),
        ({"reference_latents": np.full((MODEL.patch_size, MODEL.feat_dim), np.nan, np.float32)}, "INVALID_LATENTS"),
        ({"cfg_value": np.array([np.inf], np.float32)}, "INVALID_PARAMETER"),
        ({"bitrate": np.array([64], np.int32)}, "INVALID_PARAMETER"),
        ({"format": text("mp3"), "bitrate": np.array([65], np.int32)}, "INVALID_PARAMETER"),
        ({"prompt_text": text("alone")}, "CONFLICTING_INPUTS"),
        ({"target_text": text("a " * 100_000)}, "TOO_LARGE"),
    ],
)
def test_bad_requests_are_refused_before_they_take_a_place(
    serve: Callable[..., Served], inputs: dict[str, np.ndarray], code: str
):
    sender = serve().run(speech(**inputs))
    (error,) = sender.errors
    assert error.message.startswith(f"[{code}] request r1: ")
    assert error.code == "INVALID_ARG"
    assert sender.chunks == []


def test_unknown_parameters_are_refused_unless_allowed(serve: Callable[..., Served]):
    request = speech()
    request.parameter_values = {"cfg_vale": 1.0}
    (error,) = serve().run(request).errors
    assert "'cfg_vale'" in error.message
    request = speech()
    request.parameter_values = {"tenant": "a"}
    assert serve(allowed_parameters="tenant").run(request).errors == []


def test_a_fault_in_one_request_leaves_the_others_of_its_batch_alone(serve: Callable[..., Served]):
    served = serve()
    broken = speech("broken")
    broken.parameters = lambda: "{not json SECRET"  # type: ignore[method-assign]
    good = speech("good")
    served.run(broken, good)
    (error,) = broken.sender.errors
    assert (error.message, error.code) == ("[INTERNAL] request broken: an internal fault ended the request", "INTERNAL")
    assert good.sender.chunks[-1]["is_last"]
    lines = served.backend.Logger.lines
    assert any("'broken'" in line and "JSONDecodeError" in line for line in lines)
    assert not any("SECRET" in line or "\n" in line for line in lines)


def not_utf8() -> str:
    return b"\xff".decode()


def test_an_id_that_is_not_utf8_is_refused_and_leaves_the_others_alone(serve: Callable[..., Served]):
    odd, good = speech(), speech("good")
    odd.request_id = not_utf8  # type: ignore[method-assign]
    serve().run(odd, good)
    (error,) = odd.sender.errors
    assert error.message.startswith("[INVALID_PARAMETER] request vx-")
    assert error.message.endswith(": the request id is not valid UTF-8")
    assert good.sender.chunks[-1]["is_last"]


def test_a_parameter_that_is_not_utf8_is_refused(serve: Callable[..., Served]):
    request = speech()
    request.parameters = not_utf8  # type: ignore[method-assign]
    (error,) = serve().run(request).errors
    assert error.message == "[INVALID_PARAMETER] request r1: a request parameter is not valid UTF-8"


def test_an_engine_failure_ends_only_its_stream(serve: Callable[..., Served]):
    served = serve(step_s=0.001)
    served.engine.fails_at["bad"] = 3
    bad, good = speech("bad"), speech("good")
    served.run(bad, good)
    assert bad.sender.errors[0].code == "INTERNAL"
    assert good.sender.errors == []


@pytest.mark.parametrize("refusal", [RuntimeError("SECRET"), ValueError()])
def test_an_engine_that_refuses_gives_the_place_back(serve: Callable[..., Served], refusal: Exception):
    served = serve(max_running=1, max_waiting=1)
    served.engine.refusal = refusal
    for _ in range(3):
        assert served.run(speech()).errors[0].code == "INTERNAL"
    served.engine.refusal = None
    assert served.run(speech()).errors == []


def test_a_running_stream_is_cancelled(serve: Callable[..., Served]):
    served = serve(step_s=0.01)
    request = speech(patches=4000, length_cap=np.array([False]))
    served.adapter.execute([request])
    time.sleep(0.1)
    request.sender.gone.set()
    assert request.sender.final.wait(GENEROUS_S)
    assert request.sender.errors[0].code == "CANCELLED"
    assert request.sender.violations == []
    assert served.engine.cancelled == [0]


def test_a_waiting_stream_is_cancelled(serve: Callable[..., Served]):
    served = serve(step_s=0.01, max_running=1, max_waiting=1)
    long = speech("long", patches=4000, length_cap=np.array([False]))
    waiting = speech("waiting")
    served.adapter.execute([long, waiting])
    waiting.sender.gone.set()
    assert waiting.sender.final.wait(GENEROUS_S)
    assert waiting.sender.chunks == []
    assert not long.sender.final.is_set()
    long.sender.gone.set()
    assert long.sender.final.wait(GENEROUS_S)


def test_execute_blocks_while_the_engine_is_full(serve: Callable[..., Served]):
    served = serve(step_s=0.01, max_running=1, max_waiting=1)
    long = [speech(f"long{i}", patches=4000, length_cap=np.array([False])) for i in range(2)]
    served.adapter.execute(long)
    late = speech("late", patches=2)
    thread = threading.Thread(target=served.adapter.execute, args=([late],))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert served.engine.stats().waiting == 1
    for request in long:
        request.sender.gone.set()
    thread.join(GENEROUS_S)
    assert late.sender.final.wait(GENEROUS_S)
    assert late.sender.errors == []
    assert {request.sender.num_finals for request in long} == {1}


def test_a_blocked_request_can_be_cancelled(serve: Callable[..., Served]):
    served = serve(step_s=0.01, max_running=1, max_waiting=1)
    long = [speech(f"long{i}", patches=4000, length_cap=np.array([False])) for i in range(2)]
    served.adapter.execute(long)
    late = speech("late")
    late.sender.gone.set()
    served.adapter.execute([late])  # returns, though the engine is still full
    assert late.sender.errors[0].code == "CANCELLED"
    assert late.sender.violations == []


def test_a_deadline_ends_a_request_that_runs_waits_or_stands_at_the_gate(serve: Callable[..., Served]):
    served = serve(step_s=0.01, max_running=1, max_waiting=1)
    deadline = {"deadline_ms": np.array([300], np.int32), "length_cap": np.array([False])}
    requests = [speech(f"r{i}", patches=4000, **deadline) for i in range(3)]
    start_s = time.monotonic()
    served.adapter.execute(requests)  # the third blocks until its deadline
    for request in requests:
        assert request.sender.final.wait(GENEROUS_S)
        (error,) = request.sender.errors
        assert (error.message.split()[0], error.code) == ("[DEADLINE_EXCEEDED]", "CANCELLED")
        assert request.sender.violations == []
    assert 0.3 <= time.monotonic() - start_s < GENEROUS_S
    assert requests[0].sender.chunks
    assert served.run(speech("after")).errors == []


def test_close_answers_what_runs_and_what_waits_at_the_gate(tokenizer: TextTokenizer):
    threads_before = set(threading.enumerate())
    served = Served(tokenizer, 0.01, {"max_running": 1, "max_waiting": 1})
    requests = [speech(f"r{i}", patches=4000, length_cap=np.array([False])) for i in range(4)]
    thread = threading.Thread(target=served.adapter.execute, args=(requests,))
    thread.start()
    time.sleep(0.1)
    served.adapter.close()
    thread.join(GENEROUS_S)
    assert not thread.is_alive()
    for request in requests:
        assert request.sender.final.wait(GENEROUS_S)
        assert request.sender.errors[0].code == "UNAVAILABLE"
        assert request.sender.violations == []
    assert set(threading.enumerate()) == threads_before


def test_a_crowd_gets_what_each_gets_alone(serve: Callable[..., Served]):
    served = serve(max_running=4, max_waiting=2)
    crowd = [speech(f"r{i}", patches=3 + i, seed=np.array([i], np.int64)) for i in range(16)]
    served.run(*crowd)
    for index, request in enumerate(crowd):
        alone = served.run(speech(f"r{index}", patches=3 + index, seed=np.array([index], np.int64)))
        audio = [b"".join(chunk["audio"] for chunk in sender.chunks) for sender in (request.sender, alone)]
        assert audio[0] == audio[1]
