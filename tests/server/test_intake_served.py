"""Audio that takes long to decode, damaged or killed on the way; normalised text. On the real server."""

from __future__ import annotations

import base64
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.server.clips import clip
from tests.server.instance import Instance
from tests.server.lifecycle import is_gone, wait_until
from tests.server.wire import GrpcCall, call, generate
from tests.stopped import kill, stopped
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server
GENEROUS_S = 30.0


@pytest.fixture(scope="module")
def slow() -> bytes:
    """Half a minute in eight channels at the highest rate: seconds of decoding."""
    return clip(seconds=30, rate=384_000, channels=8, container="FLAC")


def decoders(server: TritonServer) -> list[int]:
    """Process ids of the decoders below a server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"decoder_child" in (folder / "cmdline").read_bytes() and is_below(int(folder.name), server.pid):
                found.append(int(folder.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def is_below(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == ancestor


@pytest.fixture
def stopped_decoders(triton_server: TritonServer) -> Iterator[tuple[int, ...]]:
    """The decoders, which do nothing: a file takes as long as the test."""
    assert call(triton_server, reference_audio=clip(), max_length=1).errors == []
    with stopped(decoders(triton_server)) as pids:
        yield pids


def upload_to_a_decoder(server: TritonServer, request_id: str) -> GrpcCall:
    """A request whose file has been handed to a decoder that is stopped."""
    inputs = {"target_text": "Hello", "reference_audio": clip(), "max_length": 2}
    upload = GrpcCall(server, inputs, request_id=request_id)
    with Instance(server) as instance:
        instance.wait_until_it_waits(request_id)
    time.sleep(0.5)  # that it entered can be seen; a thread then reads the file
    return upload


def wait_until_decoding(server: TritonServer) -> None:
    """Until a decoder has used the processor for a while."""
    used: dict[int, int] = {}
    end_s = time.monotonic() + GENEROUS_S
    while time.monotonic() < end_s:
        for pid in decoders(server):
            ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])
            if ticks - used.setdefault(pid, ticks) >= 5:
                return
        time.sleep(0.005)
    raise AssertionError("nothing is decoded")


def test_others_are_heard_while_a_file_is_decoded(triton_server: TritonServer, stopped_decoders: tuple[int, ...]):
    upload = upload_to_a_decoder(triton_server, "long-to-read")
    for _ in range(3):
        assert call(triton_server, max_length=2).errors == []
    assert upload.answer.chunks == []
    for pid in stopped_decoders:
        os.kill(pid, signal.SIGCONT)
    answer = upload.finish()
    assert answer.errors == []
    assert answer.audio
    assert answer.num_finals == 1


def test_a_killed_decoder_is_invalid_audio_and_nothing_more(
    triton_server: TritonServer, stopped_decoders: tuple[int, ...]
):
    upload = upload_to_a_decoder(triton_server, "killed")
    kill(stopped_decoders)
    answer = upload.finish()
    assert answer.code == "INVALID_AUDIO"
    assert "request killed" in answer.errors[0]
    wait_until(lambda: all(map(is_gone, stopped_decoders)), 5)  # else the next one may be given to the other
    assert call(triton_server, reference_audio=clip(), max_length=1).errors == []


@pytest.mark.usefixtures("stopped_decoders")
def test_a_deadline_holds_while_audio_is_decoded(triton_server: TritonServer):
    start_s = time.monotonic()
    assert call(triton_server, reference_audio=clip(), deadline_ms=700).code == "DEADLINE_EXCEEDED"
    assert time.monotonic() - start_s < 0.7 + 5 * 0.4


def test_a_caller_who_leaves_while_audio_is_decoded_leaves_nothing(triton_server: TritonServer, slow: bytes):
    uploads = [GrpcCall(triton_server, {"target_text": "Hello", "reference_audio": slow}) for _ in range(4)]
    wait_until_decoding(triton_server)
    with stopped(decoders(triton_server)) as busy:  # they would go on for ever
        for upload in uploads:
            upload.cancel()
        time.sleep(5 * 0.2)
        start_s = time.monotonic()
        assert call(triton_server, reference_audio=clip(), max_length=1).errors == []
        assert time.monotonic() - start_s < GENEROUS_S / 5, f"decoders {busy} still work for callers who left"


@pytest.mark.usefixtures("stopped_decoders")
@pytest.mark.parametrize(
    "bad", [{"format": "aac"}, {"bitrate": 64}, {"format": "mp3", "sample_rate": 9_000}, {"cfg_value": 99.0}]
)
def test_a_wrong_parameter_is_told_without_decoding(triton_server: TritonServer, bad: dict[str, object]):
    assert call(triton_server, reference_audio=clip(), **bad).code == "INVALID_PARAMETER"


def test_fifty_uploads_at_once_each_get_their_own_answer(triton_server: TritonServer):
    def send(index: int) -> list[str]:
        data = b"nothing to hear " * 50 if index % 5 == 0 else clip(seconds=0.2 + index / 100)
        return call(triton_server, reference_audio=data, max_length=2, inference_timesteps=2).errors

    with ThreadPoolExecutor(50) as threads:
        errors = list(threads.map(send, range(50)))
    assert [bool(each) for each in errors] == [index % 5 == 0 for index in range(50)]
    assert all("[INVALID_AUDIO]" in error for each in errors for error in each)


def test_damaged_files_get_an_answer_and_fill_no_log(triton_server: TritonServer):
    rng = np.random.default_rng(3)
    sound = [clip(container="WAV"), clip(container="MP3"), clip(container="FLAC"), clip(container="OGG")]
    assert triton_server.log_file is not None
    logged = triton_server.log_file.stat().st_size
    for index in range(40):
        data = bytearray(sound[index % 4])
        for position in rng.integers(0, len(data), 20):
            data[position] = rng.integers(256)
        answer = call(triton_server, reference_audio=bytes(data), max_length=1, inference_timesteps=2)
        assert not answer.errors or answer.code == "INVALID_AUDIO"
        assert answer.num_finals + len(answer.errors) == 1
    assert "mpg123" not in triton_server.log_file.read_text()
    assert triton_server.log_file.stat().st_size - logged < 40 * 200


def test_normalised_text_is_spoken_as_its_words_are(triton_server: TritonServer):
    words = call(triton_server, "three quick foxes", max_length=4, seed=1)
    told = call(triton_server, "3 quick foxes", max_length=4, seed=1, normalize=True)
    plain = call(triton_server, "3 quick foxes", max_length=4, seed=1)
    assert told.errors == []
    assert told.audio == words.audio != plain.audio


def test_normalize_over_generate(triton_server: TritonServer):
    body = {"target_text": "3 quick foxes", "max_length": 4, "seed": 1, "stream": False, "encoding": "base64"}
    status, answer = generate(triton_server, {**body, "normalize": True})
    assert status == 200, answer
    assert base64.b64decode(answer["audio"]) == call(triton_server, "three quick foxes", max_length=4, seed=1).audio


def test_text_that_vanishes_is_invalid(triton_server: TritonServer):
    assert call(triton_server, "😀", normalize=True).code == "INVALID_TEXT"
