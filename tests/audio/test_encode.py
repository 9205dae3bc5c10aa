"""The output formats, decoded by another library."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from voxcpm_core.audio.encode import FORMATS, STREAMED_FORMATS, make_encoder
from voxcpm_core.audio.mp3 import BITRATES, DELAY_SAMPLES, samples_per_frame
from voxcpm_core.errors import ErrorCode, RequestError


def _signal(num_samples: int, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(num_samples + 7)
    return (0.3 * np.convolve(noise, np.ones(8) / 8, "valid")).astype(np.float32)


def _encode(format: str, rate: int, pcm: np.ndarray, streaming: bool = True, chunk: int = 0, **options) -> list[bytes]:
    encoder = make_encoder(format, rate, streaming, **options)
    chunk = chunk or len(pcm)
    parts = [encoder.encode(pcm[start : start + chunk]) for start in range(0, len(pcm), chunk)]
    return [*parts, encoder.finish()]


@pytest.mark.parametrize(
    ("format", "streaming"), [*((f, True) for f in STREAMED_FORMATS), *((f, False) for f in FORMATS if f != "opus")]
)
@pytest.mark.parametrize("chunk", [1, 333, 1280, 7680])
def test_chunked_equals_whole(format, streaming, chunk):
    pcm = _signal(9000)
    whole = b"".join(_encode(format, 48000, pcm, streaming))
    assert b"".join(_encode(format, 48000, pcm, streaming, chunk)) == whole


def test_pcm_is_rounded_and_clipped():
    pcm = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.5 / 32767, 1.5 / 32767, -0.6 / 32767], np.float32)
    data = b"".join(_encode("pcm_s16le", 16000, pcm))
    assert np.frombuffer(data, "<i2").tolist() == [0, 32767, -32767, 32767, -32768, 0, 2, -1]


@pytest.mark.parametrize("format", FORMATS)
def test_non_finite_samples_are_not_hidden(format):
    with pytest.raises(AssertionError):
        make_encoder(format, 16000, False).encode(np.array([0.0, np.nan], np.float32))


def test_whole_wav_has_exact_sizes():
    pcm = _signal(1001)
    *chunks, data = _encode("wav", 44100, pcm, streaming=False, chunk=100)
    assert chunks == [b""] * 11
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    assert int.from_bytes(data[40:44], "little") == 2 * len(pcm)
    decoded, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert rate == 44100
    np.testing.assert_allclose(decoded, pcm, atol=1 / 32768)


def test_streamed_wav_header_comes_with_the_first_samples_and_is_open():
    pcm = _signal(1001)
    first, *rest, last = _encode("wav", 16000, pcm, chunk=100)
    assert (first[:4], first[4:8], first[40:44]) == (b"RIFF", b"\xff" * 4, b"\xff" * 4)
    assert len(first) == 44 + 200
    assert last == b""
    decoded, rate = soundfile.read(io.BytesIO(b"".join([first, *rest])), dtype="float32")
    assert (rate, len(decoded)) == (16000, 1001)


@pytest.mark.parametrize("rate", BITRATES)
@pytest.mark.parametrize("which", [0, None, -1])
def test_mp3_keeps_rate_bitrate_and_place(rate, which):
    pcm = _signal(4000)
    bitrate = None if which is None else BITRATES[rate][which]
    data = b"".join(_encode("mp3", rate, pcm, bitrate=bitrate))
    decoded, decoded_rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert decoded_rate == rate
    # libsndfile trims nothing, since the stream bears no Info tag: its length is a whole number of frames
    assert len(decoded) % samples_per_frame(rate) == 0
    assert int(np.correlate(decoded, pcm, "valid").argmax()) == DELAY_SAMPLES
    kbits = 8 * len(data) * rate / len(decoded) / 1000
    assert kbits == pytest.approx(bitrate or min(128, BITRATES[rate][-1]), rel=0.02)


@pytest.mark.parametrize("rate", [16000, 24000, 44100, 48000])
def test_less_than_one_mp3_frame_follows_the_last_sample(rate):
    frame = samples_per_frame(rate)
    tails = set()
    for num_samples in [640, *range(3 * frame, 4 * frame, 12)]:
        pcm = _signal(num_samples)
        decoded, _ = soundfile.read(io.BytesIO(b"".join(_encode("mp3", rate, pcm, chunk=500))), dtype="float32")
        tails.add(len(decoded) - DELAY_SAMPLES - num_samples)
    assert min(tails) >= 0
    assert frame - 12 <= max(tails) < frame


def test_the_end_of_an_mp3_stream_is_intact():
    """Also where a frame of padding is left out (residues 5 to 46 of the length, as LAME pads)."""
    for num_samples in range(4 * 1152 + 1100, 5 * 1152 + 100, 4):
        pcm = _signal(num_samples)
        pcm[: num_samples - 300] = 0.0
        decoded, _ = soundfile.read(io.BytesIO(b"".join(_encode("mp3", 48000, pcm, bitrate=320))), dtype="float32")
        end = decoded[DELAY_SAMPLES : DELAY_SAMPLES + num_samples][-300:]
        assert np.corrcoef(end, pcm[-300:])[0, 1] > 0.99


def test_mp3_without_samples_is_empty():
    assert make_encoder("mp3", 16000, True).finish() == b""


@pytest.mark.parametrize(
    ("format", "rate", "bitrate"),
    [("aac", 16000, None), ("mp3", 16001, None), ("mp3", 96000, None), ("mp3", 16000, 320), ("mp3", 48000, 8),
     ("mp3", 44100, 0), ("mp3", 44100, -1), ("mp3", 8000, 128), ("wav", 16000, 128), ("pcm_s16le", 16000, 128),
     ("flac", 16000, 128), ("opus", 44100, None), ("opus", 48000, 5), ("opus", 48000, 257), ("opus", 32000, 64)],
)
def test_what_a_format_lacks_is_refused(format, rate, bitrate):
    with pytest.raises(RequestError) as caught:
        make_encoder(format, rate, False, bitrate)
    assert caught.value.code is ErrorCode.INVALID_PARAMETER


@pytest.mark.parametrize("format", ["flac", "opus"])
def test_whole_formats_are_not_streamed(format):
    with pytest.raises(RequestError, match="cannot be streamed") as caught:
        make_encoder(format, 16000, True)
    assert caught.value.code is ErrorCode.INVALID_PARAMETER


def test_float_pcm_is_exact():
    pcm = _signal(999)
    assert np.array_equal(np.frombuffer(b"".join(_encode("pcm_f32le", 48000, pcm)), "<f4"), pcm)


def test_flac_is_16_bit_and_exact_to_it():
    pcm = _signal(5000)
    data = b"".join(_encode("flac", 44100, pcm, streaming=False, chunk=700))
    decoded, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert (rate, soundfile.info(io.BytesIO(data)).subtype) == (44100, "PCM_16")
    np.testing.assert_allclose(decoded, pcm, atol=1 / 32768)


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
@pytest.mark.parametrize("kbits", [16, None, 192])
def test_opus_keeps_rate_length_and_bitrate(rate, kbits):
    seconds = 4
    pcm = _signal(seconds * rate)
    data = b"".join(_encode("opus", rate, pcm, streaming=False, chunk=rate // 10, bitrate=kbits))
    decoded, found_rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert (found_rate, len(decoded)) == (rate, len(pcm))
    assert 8 * len(data) / seconds / 1000 == pytest.approx(kbits or 128, rel=0.15)
    assert np.corrcoef(decoded, pcm)[0, 1] > (0.5 if kbits == 16 else 0.95)  # 16 kbit/s drop most of this noise


def test_a_long_format_name_is_cut():
    with pytest.raises(RequestError) as caught:
        make_encoder("x" * 1000, 16000, True)
    assert len(str(caught.value)) < 120
