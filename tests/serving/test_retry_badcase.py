"""`retry_badcase` through the adapter: what counts, with which seed, and how a caller leaves in between."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.serving.fake_triton import FakeRequest, text
from tests.serving.served import GENEROUS_S, MODEL, Served, speech
from voxcpm_core.text.tokenizer import TextTokenizer

RETRY = {"retry_badcase": np.array([True]), "stream": np.array([False]), "seed": np.array([100], np.int64)}
TEXT = "hello there"


def retried(request_id: str = "r1", **inputs: np.ndarray) -> FakeRequest:
    return speech(request_id, patches=100_000, **{**RETRY, "target_text": text(TEXT), **inputs})


def test_a_good_attempt_is_the_answer_and_equals_the_request_without_retry(serve: Callable[..., Served]):
    served = serve()
    served.engine.stops_at[100] = 5
    once = served.run(retried("once", retry_badcase=np.array([False])))
    (chunk,) = served.run(retried()).chunks
    assert chunk["seed"] == 100
    assert chunk["finish_reason"] == b"stop"
    assert chunk["audio"] == once.chunks[0]["audio"]
    assert len(served.engine.submitted) == 2


@pytest.mark.parametrize("num_bad", [1, 2])
def test_the_answer_is_that_of_the_seed_that_made_it(serve: Callable[..., Served], num_bad: int):
    served = serve()
    served.engine.stops_at[100 + num_bad] = 7
    sender = served.run(retried())
    (chunk,) = sender.chunks
    assert sender.num_finals == 1
    assert chunk["seed"] == 100 + num_bad
    assert chunk["num_samples"] == 8 * MODEL.samples_per_patch
    alone = served.run(retried("alone", seed=np.array([100 + num_bad], np.int64), retry_badcase=np.array([False])))
    assert chunk["audio"] == alone.chunks[0]["audio"]
    assert len(served.engine.submitted) == num_bad + 2


def test_the_third_counts_whatever_it_is(serve: Callable[..., Served], tokenizer: TextTokenizer):
    served = serve()
    (chunk,) = served.run(retried(return_latents=np.array([True]))).chunks
    num_tokens = len(tokenizer.encode(TEXT))
    assert [request.seed for request in served.engine.submitted] == [100, 101, 102]
    assert chunk["seed"] == 102
    assert chunk["finish_reason"] == b"length"
    assert len(chunk["latents"]) == (6 * num_tokens + 10) * MODEL.patch_size
    assert chunk["num_samples"] == (6 * num_tokens + 10) * MODEL.samples_per_patch


@pytest.mark.parametrize("format", ["wav", "mp3", "flac"])
def test_nothing_of_a_bad_attempt_is_heard(serve: Callable[..., Served], format: str):
    served = serve()
    served.engine.stops_at[102] = 5
    options = {"format": text(format), "sample_rate": np.array([16_000], np.int32)}
    (chunk,) = served.run(retried(**options)).chunks
    alone = served.run(retried("alone", seed=np.array([102], np.int64), retry_badcase=np.array([False]), **options))
    assert chunk["audio"] == alone.chunks[0]["audio"]


def test_a_drawn_seed_stays_exact_in_json(serve: Callable[..., Served]):
    served = serve()
    request = retried()
    del request.inputs_by_name["seed"]
    (chunk,) = served.run(request).chunks
    assert chunk["seed"] == served.engine.submitted[0].seed + 2 < 2**53


def test_a_failed_attempt_is_not_made_again(serve: Callable[..., Served]):
    served = serve()
    served.engine.fails_at["r1"] = 3
    sender = served.run(retried())
    assert sender.errors[0].code == "INTERNAL"
    assert len(served.engine.submitted) == 1


@pytest.mark.parametrize("cause", ["cancel", "deadline"])
def test_a_caller_leaves_between_and_during_attempts(serve: Callable[..., Served], cause: str):
    rng = np.random.default_rng(0)
    served = serve(step_s=0.001, max_running=4, max_waiting=4)
    waits_ms = [int(rng.integers(1, 120)) for _ in range(24)]
    for index, wait_ms in enumerate(waits_ms):
        deadline = {"deadline_ms": np.array([wait_ms], np.int32)} if cause == "deadline" else {}
        request = retried(f"r{index}", **deadline)
        served.adapter.execute([request])
        if cause == "cancel":
            time.sleep(wait_ms / 1000)
            request.sender.gone.set()
        assert request.sender.final.wait(GENEROUS_S)
        assert request.sender.num_finals == 1
        assert request.sender.violations == []
        assert all(error.code == "CANCELLED" for error in request.sender.errors)
    assert served.run(speech("after")).errors == []
    assert served.engine.stats().running == served.engine.stats().waiting == 0


def test_the_place_is_kept_for_all_attempts(serve: Callable[..., Served]):
    served = serve(step_s=0.002, max_running=1, max_waiting=1)
    served.run(*[retried(f"r{index}") for index in range(4)], within_s=4 * GENEROUS_S)
    assert len(served.engine.submitted) == 12
    assert served.engine.most_waiting <= 1 + 1


def test_it_is_refused_for_a_stream(serve: Callable[..., Served]):
    (error,) = serve().run(retried(stream=np.array([True]))).errors
    assert error.message.startswith("[INVALID_PARAMETER] request r1: retry_badcase: ")


def test_close_answers_an_attempt(tokenizer: TextTokenizer):
    served = Served(tokenizer, 0.005, {})
    request = retried()
    served.adapter.execute([request])
    while len(served.engine.submitted) < 2:
        time.sleep(0.005)
    served.adapter.close()
    assert request.sender.final.wait(GENEROUS_S)
    assert request.sender.errors[0].code == "UNAVAILABLE"
