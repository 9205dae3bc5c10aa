"""Decoding in child processes: what a damaged file, a killed child or a slow one does to its caller, and to others."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import soundfile

from tests.stopped import kill, stopped
from voxcpm_core.audio.decode import decode_audio
from voxcpm_core.audio.decoder import NUM_CHILDREN, AudioDecoder
from voxcpm_core.errors import ErrorCode, RequestError

GENEROUS_S = 20.0
RATE = 16_000


@pytest.fixture(scope="module")
def decoder() -> Iterator[AudioDecoder]:
    decoder = AudioDecoder(RATE, 60)
    yield decoder
    decoder.close()
    assert decoder.pids == ()


def file_of(samples: np.ndarray, rate: int = RATE, format: str = "WAV", subtype: str | None = None) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=format, subtype=subtype)
    return buffer.getvalue()


def noise(num_samples: int, num_channels: int = 1) -> np.ndarray:
    return np.random.default_rng(0).uniform(-0.3, 0.3, (num_samples, num_channels)).astype(np.float32)


class Waiting:
    """A caller who waits for a stopped decoder that has its file, of a few kilobytes: more waits to be handed over."""

    def __init__(self, threads: ThreadPoolExecutor, decoder: AudioDecoder, data: bytes) -> None:
        self._asked = threading.Event()
        self._error: RequestError | None = None
        self.call = threads.submit(decoder.decode, data, self._departure)
        # With an idle child the first question comes after the file was handed over.
        assert self._asked.wait(GENEROUS_S)

    def leave(self, error: RequestError) -> None:
        self._error = error

    def _departure(self) -> RequestError | None:
        self._asked.set()
        return self._error


@pytest.fixture
def warm() -> Iterator[AudioDecoder]:
    """A decoder with one child, which is idle."""
    decoder = AudioDecoder(RATE, 60)
    decoder.decode(file_of(noise(100)))
    yield decoder
    decoder.close()


@pytest.mark.parametrize(("format", "rate"), [("WAV", 16_000), ("FLAC", 44_100), ("OGG", 48_000), ("MP3", 22_050)])
def test_it_gives_what_decoding_in_this_process_gives(decoder: AudioDecoder, format: str, rate: int):
    data = file_of(noise(rate // 2, 2), rate, format)
    decoded = decoder.decode(data)
    assert decoded.flags.writeable
    np.testing.assert_array_equal(decoded, decode_audio(data, RATE, 60))


@pytest.mark.parametrize("data", [b"", b"\0", b"not audio " * 1000, file_of(noise(0)), file_of(noise(61 * RATE))])
def test_refusals_are_those_of_decoding_in_this_process(decoder: AudioDecoder, data: bytes):
    with pytest.raises(RequestError) as expected:
        decode_audio(data, RATE, 60)
    with pytest.raises(RequestError) as caught:
        decoder.decode(data)
    assert (caught.value.code, str(caught.value)) == (expected.value.code, str(expected.value))


def test_headers_that_promise_anything(decoder: AudioDecoder):
    """Every field of the first 64 bytes of each format, at its largest and at random."""
    rng = np.random.default_rng(2)
    kinds = [("WAV", "PCM_16"), ("WAVEX", "FLOAT"), ("RF64", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"),
             ("MP3", None)]
    codes = set()
    for format, subtype in kinds:
        sound = file_of(noise(3000), RATE, format, subtype)
        for start in range(0, 64, 4):
            for field in (b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", rng.bytes(4)):
                data = sound[:start] + field + sound[start + 4 :]
                try:
                    assert np.isfinite(decoder.decode(data)).all()
                except RequestError as error:
                    codes.add(error.code)
    assert codes == {ErrorCode.INVALID_AUDIO}


def test_what_the_decoders_say_of_a_file_goes_nowhere(decoder: AudioDecoder, capfd: pytest.CaptureFixture[str]):
    data = bytearray(file_of(noise(RATE), RATE, "MP3"))
    data[500:4000] = np.random.default_rng(0).bytes(3500)
    with pytest.raises(RequestError):
        decoder.decode(bytes(data[:3000]) + b"\xff" * 5000)
    decode = f"from voxcpm_core.audio.decode import decode_audio; decode_audio({bytes(data)!r}, {RATE}, 60)"
    said = subprocess.run([sys.executable, "-c", decode], capture_output=True, check=False)
    assert said.stderr, "libmpg123 no longer comments on such files"
    assert capfd.readouterr() == ("", "")


def test_a_child_killed_while_it_decodes_is_invalid_audio_and_the_next_file_works(warm: AudioDecoder):
    with ThreadPoolExecutor(1) as threads, stopped(warm.pids) as pids:
        waiting = Waiting(threads, warm, file_of(noise(1000)))
        kill(pids)
        error = waiting.call.exception(GENEROUS_S)
    assert isinstance(error, RequestError)
    assert error.code is ErrorCode.INVALID_AUDIO
    assert "crashes" in str(error)
    assert len(warm.decode(file_of(noise(100)))) == 100


def test_a_file_that_takes_too_long_is_invalid_audio():
    decoder = AudioDecoder(RATE, 60, limit_s=0.5)
    decoder.decode(file_of(noise(100)))
    with stopped(decoder.pids), pytest.raises(RequestError, match="longer than 0.5 s") as caught:
        decoder.decode(file_of(noise(1000)))
    assert caught.value.code is ErrorCode.INVALID_AUDIO
    decoder.close()


def test_a_small_file_does_not_wait_for_a_large_one(warm: AudioDecoder):
    with ThreadPoolExecutor(1) as threads:
        with stopped(warm.pids):
            large = Waiting(threads, warm, file_of(np.zeros(20 * RATE), format="FLAC"))
            assert len(warm.decode(file_of(noise(1000)))) == 1000
            assert not large.call.done()
        assert len(large.call.result(GENEROUS_S)) == 20 * RATE


def test_fifty_at_once(decoder: AudioDecoder):
    files = [file_of(noise(100 + index)) if index % 3 else b"not audio" for index in range(50)]

    def decode(data: bytes) -> int:
        try:
            return len(decoder.decode(data))
        except RequestError:
            return 0

    with ThreadPoolExecutor(50) as threads:
        lengths = list(threads.map(decode, files))
    assert lengths == [100 + index if index % 3 else 0 for index in range(50)]
    assert 1 <= len(decoder.pids) <= NUM_CHILDREN


def test_a_caller_who_leaves_is_answered_while_the_file_is_decoded(warm: AudioDecoder):
    error = RequestError(ErrorCode.CANCELLED, "gone")
    with ThreadPoolExecutor(1) as threads, stopped(warm.pids):
        waiting = Waiting(threads, warm, file_of(noise(1000)))
        start_s = time.monotonic()
        waiting.leave(error)
        assert waiting.call.exception(GENEROUS_S) is error
    assert time.monotonic() - start_s < 5 * 0.2


def test_the_child_is_small_and_has_no_torch():
    code = "import sys, voxcpm_core.audio.decoder_child; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
