"""Requests that take seconds to read: nobody else waits for them, and they are answered whatever happens."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.fake_triton import FakeRequest, text
from tests.serving.served import GENEROUS_S, MODEL, Served, speech, wav_bytes
from tests.stopped import kill, stopped
from voxcpm_core.config import EngineConfig
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.prepare import prepare
from voxcpm_core.serving.inputs import AWAITED, ParsedRequest
from voxcpm_core.serving.intake import most_positions
from voxcpm_core.serving.options import OutputOptions
from voxcpm_core.text.tokenizer import TextTokenizer
from voxcpm_core.types import Condition, SamplingParams, SpeechRequest

DECODE_S = 30.0  # for a file on a busy machine


@pytest.fixture(scope="module")
def long() -> np.ndarray:
    """Half a minute, which is more than fits into the engine, in a file of a few kilobytes."""
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros(30 * 16_000, np.float32), 16_000, format="FLAC")
    return text(buffer.getvalue())


@pytest.fixture(scope="module")
def slow() -> np.ndarray:
    """Twenty seconds in eight channels at the highest rate: longer than a caller goes unasked."""
    buffer = io.BytesIO()
    soundfile.write(buffer, np.zeros((20 * 384_000, 8), np.int16), 384_000, format="FLAC")
    return text(buffer.getvalue())


@pytest.fixture
def _one_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voxcpm_core.audio.decoder.NUM_CHILDREN", 1)


@contextmanager
def slow_decoder(served: Served) -> Iterator[tuple[int, ...]]:
    """Meanwhile a file that is decoded takes as long as one likes; gives the only decoder's process."""
    served.run(speech("warm", reference_audio=text(wav_bytes())), within_s=DECODE_S)
    with stopped(decoder_pids()) as pids:
        yield pids


def decoder_pids() -> list[int]:
    """Of this process's decoders that are at work or wait."""
    listed = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "decoder_child" in line]


def wait_until_asked(request: FakeRequest) -> None:
    """Until somebody asks whether the caller is still there: its file has been handed over by then."""
    end_s, asked = time.monotonic() + GENEROUS_S, request.sender.num_polls
    while request.sender.num_polls == asked:
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.mark.usefixtures("_one_decoder")
def test_a_request_with_a_slow_file_holds_up_nobody(serve: Callable[..., Served], long: np.ndarray):
    served = serve()
    upload, plain = speech("upload", reference_audio=long), speech("plain")
    with slow_decoder(served):
        served.adapter.execute([upload, plain])
        assert plain.sender.final.wait(GENEROUS_S)
        assert not upload.sender.final.is_set()
    assert upload.sender.final.wait(DECODE_S)
    assert upload.sender.errors[0].message.startswith("[TOO_LARGE]"), "it was decoded: so long a file does not fit"
    assert upload.sender.violations == plain.sender.violations == []


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"format": text("aac")}, "INVALID_PARAMETER"),
        ({"format": text("mp3"), "bitrate": np.array([65], np.int32)}, "INVALID_PARAMETER"),
        ({"format": text("mp3"), "sample_rate": np.array([9_000], np.int32)}, "INVALID_PARAMETER"),
        ({"format": text("flac")}, "INVALID_PARAMETER"),
        ({"cfg_value": np.array([11], np.float32)}, "INVALID_PARAMETER"),
        ({"target_text": text(" ")}, "INVALID_TEXT"),
        ({"target_text": text("a " * 10_000)}, "TOO_LARGE"),
        ({"prompt_text": text("alone")}, "CONFLICTING_INPUTS"),
        ({"prompt_latents": np.full((4, 8), np.nan, np.float32), "prompt_text": text("x")}, "INVALID_LATENTS"),
    ],
)
def test_what_can_be_told_without_the_audio_is_told_before_it_is_decoded(
    serve: Callable[..., Served], long: np.ndarray, inputs: dict[str, np.ndarray], code: str
):
    request = speech(reference_audio=long, **inputs)
    serve().adapter.execute([request])
    assert request.sender.final.is_set(), "answered within execute()"
    assert request.sender.errors[0].message.startswith(f"[{code}] request r1: ")


def test_bad_audio_gives_its_place_back(serve: Callable[..., Served]):
    served = serve(max_running=1, max_waiting=1)
    for index in range(4):
        (error,) = served.run(speech(f"r{index}", reference_audio=text(b"not audio"))).errors
        assert error.message == (
            f"[INVALID_AUDIO] request r{index}: the data cannot be decoded as wav, flac, ogg or mp3"
        )
    assert served.run(speech("good", reference_audio=text(wav_bytes()))).errors == []


def test_audio_that_does_not_fit_is_too_large_once_its_length_is_known(serve: Callable[..., Served]):
    served = serve(max_model_len=64)
    request = speech(reference_audio=text(wav_bytes(64 * MODEL.encoder_samples_per_patch)))
    assert served.run(request).errors[0].message.startswith("[TOO_LARGE]")
    assert served.run(speech("small", reference_audio=text(wav_bytes(100)))).errors == []


@pytest.mark.usefixtures("_one_decoder")
def test_a_crashed_decoder_is_invalid_audio_and_the_next_file_works(serve: Callable[..., Served], long: np.ndarray):
    served = serve()
    request = speech(reference_audio=long)
    with slow_decoder(served) as pids:
        served.adapter.execute([request])
        wait_until_asked(request)
        kill(pids)
        assert request.sender.final.wait(GENEROUS_S)
    assert request.sender.errors[0].message.startswith("[INVALID_AUDIO]")
    assert served.run(speech("next", reference_audio=text(wav_bytes()))).errors == []


@pytest.mark.usefixtures("_one_decoder")
@pytest.mark.parametrize("cause", ["cancel", "deadline"])
def test_a_caller_leaves_while_the_audio_is_decoded(serve: Callable[..., Served], slow: np.ndarray, cause: str):
    """The decoder is killed with the first; those that follow it are not stopped."""
    served = serve()
    deadline = {"deadline_ms": np.array([400], np.int32)} if cause == "deadline" else {}
    requests = [speech(f"r{index}", reference_audio=slow, **deadline) for index in range(6)]  # five wait for the child
    with slow_decoder(served):
        num_submitted = len(served.engine.submitted)
        served.adapter.execute(requests)
        wait_until_asked(requests[0])
        for request in requests:
            request.sender.gone.set() if cause == "cancel" else None
        start_s = time.monotonic()
        for request in requests:
            assert request.sender.final.wait(5 * 0.4)
            assert request.sender.errors[0].code == "CANCELLED"
            assert request.sender.violations == []
            assert request.sender.num_finals == 1
        assert time.monotonic() - start_s < 5 * 0.4
    assert len(served.engine.submitted) == num_submitted
    assert served.run(speech("next", reference_audio=text(wav_bytes()))).errors == []


@pytest.mark.usefixtures("_one_decoder")
def test_close_answers_what_is_decoded_and_what_waits_for_it(tokenizer: TextTokenizer, long: np.ndarray):
    threads_before, pids_before = set(threading.enumerate()), decoder_pids()
    served = Served(tokenizer, 0.0, {})
    requests = [speech(f"r{index}", reference_audio=long) for index in range(6)]
    with slow_decoder(served):
        served.adapter.execute(requests)
        wait_until_asked(requests[0])
        served.adapter.close()
    for request in requests:
        assert request.sender.final.is_set()
        assert request.sender.errors[0].message.endswith("retry after 1000 ms")
        assert request.sender.violations == []
    assert set(threading.enumerate()) == threads_before
    assert decoder_pids() == pids_before


@pytest.mark.usefixtures("_one_decoder")
def test_uploads_count_at_the_gate(serve: Callable[..., Served], long: np.ndarray):
    served = serve(max_running=1, max_waiting=2)
    inside = [speech(f"r{index}", reference_audio=long) for index in range(2)]
    late = speech("late")
    with slow_decoder(served):
        served.adapter.execute(inside)
        thread = threading.Thread(target=served.adapter.execute, args=([late],))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive(), "nobody runs yet, and two may wait"
        for request in inside:
            request.sender.gone.set()
        assert late.sender.final.wait(GENEROUS_S)
    thread.join(GENEROUS_S)
    assert late.sender.errors == []


def test_fifty_uploads_at_once(serve: Callable[..., Served]):
    served = serve(max_running=8, max_waiting=4)
    requests = [
        speech(f"r{index}", patches=2, reference_audio=text(wav_bytes(500 + index) if index % 5 else b"bad"))
        for index in range(50)
    ]
    served.run(*requests, within_s=DECODE_S)
    assert [len(request.sender.errors) for request in requests] == [0 if index % 5 else 1 for index in range(50)]
    assert served.run(speech("after")).errors == []


def test_normalised_text_is_what_the_engine_gets(serve: Callable[..., Served]):
    served = serve()
    told = speech("told", target_text=text("three quick foxes"))
    asked = speech("asked", target_text=text("3 quick\n foxes"), normalize=np.array([True]))
    served.run(told, asked, within_s=DECODE_S)
    first, second = served.engine.submitted
    assert first.token_ids == second.token_ids
    plain = speech("plain", target_text=text("3 quick\n foxes"), normalize=np.array([False]))
    served.run(plain)
    assert served.engine.submitted[-1].token_ids != first.token_ids


def test_the_prompts_text_is_left_as_it_is(serve: Callable[..., Served]):
    served = serve()
    prompt = {"prompt_text": text("1 2 "), "prompt_audio": text(wav_bytes())}
    served.run(speech(target_text=text("3"), normalize=np.array([True]), **prompt), within_s=DECODE_S)
    served.run(speech(target_text=text("three"), **prompt))
    first, second = served.engine.submitted
    assert first.token_ids == second.token_ids


def test_text_of_which_nothing_can_be_read_is_invalid(serve: Callable[..., Served]):
    served = serve()
    for unreadable in ("😀", "<b>", '" - '):
        request = speech(target_text=text(unreadable), normalize=np.array([True]))
        (error,) = served.run(request, within_s=DECODE_S).errors
        assert error.message.startswith("[INVALID_TEXT]")


def parsed(uploads: dict[str, bytes], normalize: bool) -> ParsedRequest:
    return ParsedRequest(SpeechRequest("x"), OutputOptions(), uploads, normalize, False)


@settings(max_examples=100, deadline=None)
@given(
    max_model_len=st.integers(20, 1024),
    max_audio_seconds=st.integers(1, 3),
    max_length=st.none() | st.integers(1, 200),
    length_cap=st.booleans(),
    share=st.floats(0, 1),
    has_prompt=st.booleans(),
)
def test_no_request_takes_more_than_it_entered_with(
    tokenizer: TextTokenizer, max_model_len: int, max_audio_seconds: int, max_length: int | None, length_cap: bool,
    share: float, has_prompt: bool,
):
    config = EngineConfig(max_model_len=max_model_len, max_audio_seconds=max_audio_seconds)
    params = SamplingParams(max_length=max_length, length_cap=length_cap)
    prompt = {"prompt_text": "so ", "prompt": AWAITED} if has_prompt else {}
    least = prepare(SpeechRequest("hi", params=params, reference=AWAITED, **prompt), MODEL, config, tokenizer)
    uploads = {"reference": b"", **({"prompt": b""} if has_prompt else {})}
    most = most_positions(least, parsed(uploads, False), MODEL, config)
    num_samples = max(1, int(share * max_audio_seconds * MODEL.vae.encoder_sample_rate))
    audio = Condition(np.zeros(num_samples, np.float32))
    prompt = {"prompt_text": "so ", "prompt": audio} if has_prompt else {}
    true = positions_of(SpeechRequest("hi", params=params, reference=audio, **prompt), config, tokenizer)
    assert true is None or true <= most <= max_model_len


def positions_of(request: SpeechRequest, config: EngineConfig, tokenizer: TextTokenizer) -> int | None:
    """None for a request that does not fit."""
    try:
        return prepare(request, MODEL, config, tokenizer).num_positions
    except RequestError as error:
        if error.code is not ErrorCode.TOO_LARGE:
            raise
        return None


def test_a_decoder_that_cannot_be_started_is_a_fault_inside(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
):
    served = serve()
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    requests = [speech(f"r{index}", reference_audio=text(wav_bytes())) for index in range(3)]
    for pid in decoder_pids():
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # to its very end
    served.run(*requests)
    assert {request.sender.errors[0].code for request in requests} == {"INTERNAL"}
    monkeypatch.delenv("PYTHONHOME")
    assert served.run(speech("next", reference_audio=text(wav_bytes()))).errors == []


def test_normalize_without_its_library_says_what_to_install():
    code = """
import sys
sys.modules["wetext"] = None
import numpy as np
from tests.serving.conftest import MODEL
from tests.serving.served import Served, speech
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.text.tokenizer import TextTokenizer
from pathlib import Path
import tempfile
with tempfile.TemporaryDirectory() as folder:
    write_tokenizer(Path(folder), MODEL.vocab_size)
    served = Served(TextTokenizer.from_folder(Path(folder)), 0.0, {})
(error,) = served.run(speech(normalize=np.array([True]))).errors
print(error.message)
served.adapter.close()
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("[INVALID_PARAMETER] request r1: normalize needs wetext")
    assert "pip install" in shown


def test_requests_without_audio_keep_their_order(serve: Callable[..., Served]):
    served = serve(max_running=1, max_waiting=8)
    requests: list[FakeRequest] = []
    for index in range(6):
        requests.append(speech(f"plain{index}", patches=2))
        requests.append(speech(f"upload{index}", patches=2, reference_audio=text(wav_bytes())))
    served.run(*requests, within_s=DECODE_S)
    order = [request.request_id for request in served.engine.submitted]
    assert [name for name in order if name.startswith("plain")] == [f"plain{index}" for index in range(6)]
