"""Uploaded files of every kind, sound and damaged."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest
import soundfile

from voxcpm_core.audio.decode import MAX_PEAK, decode_audio
from voxcpm_core.audio.encode import make_encoder
from voxcpm_core.errors import ErrorCode, RequestError


def _tone(num_samples: int, rate: int, hertz: float = 440.0) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(num_samples) / rate)).astype(np.float32)


def _file(samples: np.ndarray, rate: int, format: str, subtype: str | None = None) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=format, subtype=subtype)
    return buffer.getvalue()


def _refused(data: bytes, max_seconds: float = 60) -> str:
    with pytest.raises(RequestError) as caught:
        decode_audio(data, 16000, max_seconds)
    assert caught.value.code is ErrorCode.INVALID_AUDIO
    return str(caught.value)


@pytest.mark.parametrize(
    ("format", "subtype", "tolerance"),
    [("WAV", "PCM_U8", 0.01), ("WAV", "PCM_16", 1e-4), ("WAV", "PCM_24", 1e-6), ("WAV", "PCM_32", 1e-6),
     ("WAV", "FLOAT", 0), ("WAV", "DOUBLE", 1e-7), ("WAVEX", "PCM_24", 1e-6), ("RF64", "PCM_16", 1e-4),
     ("FLAC", "PCM_16", 1e-4), ("FLAC", "PCM_24", 1e-6), ("OGG", "VORBIS", 0.05), ("OGG", "OPUS", 0.1),
     ("MP3", None, 0.05)],
)
def test_formats_at_the_models_rate(format, subtype, tolerance):
    tone = _tone(16001, 16000)
    decoded = decode_audio(_file(tone, 16000, format, subtype), 16000, 60)
    assert decoded.dtype == np.float32
    assert decoded.shape == tone.shape
    np.testing.assert_allclose(decoded[2000:-2000], tone[2000:-2000], atol=tolerance)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
def test_other_rates_are_resampled(rate):
    decoded = decode_audio(_file(_tone(rate, rate), rate, "WAV", "FLOAT"), 16000, 60)
    assert abs(len(decoded) - 16000) <= 1
    np.testing.assert_allclose(decoded[500:15500], _tone(16000, 16000)[500:15500], atol=2e-3)


@pytest.mark.parametrize("num_channels", [2, 3, 6])
def test_channels_are_averaged(num_channels):
    channels = np.stack([_tone(4000, 16000, 200.0 * (1 + index)) for index in range(num_channels)], axis=1)
    decoded = decode_audio(_file(channels, 16000, "WAV", "FLOAT"), 16000, 60)
    np.testing.assert_allclose(decoded, channels.mean(axis=1), atol=1e-6)


def test_stereo_8_bit_and_odd_lengths():
    stereo = np.stack([_tone(777, 16000), _tone(777, 16000)], axis=1)
    assert decode_audio(_file(stereo, 16000, "WAV", "PCM_U8"), 16000, 60).shape == (777,)


@pytest.mark.parametrize("format", ["wav", "mp3"])
def test_our_own_streams_can_be_prompts(format):
    tone = _tone(16000, 16000)
    encoder = make_encoder(format, 16000, streaming=True)
    decoded = decode_audio(encoder.encode(tone) + encoder.finish(), 16000, 60)
    assert 16000 <= len(decoded) < 16000 + 1105 + 576


@pytest.mark.parametrize(
    "data",
    [b"", b"RIFF", b"hello world" * 1000, b"\0" * 5000, b"<html>" * 100, b"ID3" + b"\0" * 4000, b"OggS" * 200,
     b"fLaC" + b"\xff" * 500, np.random.default_rng(0).bytes(20000)],
)
def test_not_audio(data):
    _refused(data)


@pytest.mark.parametrize("format", ["AIFF", "AU", "W64", "CAF"])
def test_other_formats_are_refused(format):
    assert "wav, flac, ogg or mp3" in _refused(_file(_tone(4000, 16000), 16000, format, "PCM_16"))


@pytest.mark.parametrize(("format", "subtype"), [("WAV", "PCM_16"), ("OGG", "VORBIS")])
def test_zero_samples(format, subtype):
    assert "no samples" in _refused(_file(np.empty(0, np.float32), 16000, format, subtype))


@pytest.mark.parametrize(
    ("format", "subtype", "num_kept"),
    [("WAV", "FLOAT", 44), ("WAV", "PCM_16", 30), ("FLAC", "PCM_16", 44), ("FLAC", "PCM_16", 2000),
     ("OGG", "VORBIS", 2000), ("MP3", None, 100)],
)
def test_truncated_files(format, subtype, num_kept):
    _refused(_file(_tone(16000, 16000), 16000, format, subtype)[:num_kept])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2 * MAX_PEAK, 3e38])
def test_samples_that_are_no_audio(bad):
    tone = _tone(4000, 16000)
    tone[1234] = bad
    _refused(_file(np.stack([tone, tone], axis=1), 16000, "WAV", "FLOAT"))


@pytest.mark.parametrize(
    ("format", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None)]
)
def test_over_the_limit(format, subtype):
    assert "longer than 2 s" in _refused(_file(_tone(3 * 16000, 16000), 16000, format, subtype), max_seconds=2)


def test_exactly_the_limit_is_accepted():
    assert len(decode_audio(_file(_tone(32000, 16000), 16000, "FLAC"), 16000, 2)) == 32000


def _with_flac_length(data: bytes, num_frames: int) -> bytes:
    """Rewrite the 36-bit frame count of STREAMINFO."""
    field = int.from_bytes(data[18:26], "big")
    return data[:18] + (field >> 36 << 36 | num_frames).to_bytes(8, "big") + data[26:]


def test_a_claimed_length_is_refused_before_decoding():
    data = _with_flac_length(_file(_tone(16000, 16000), 16000, "FLAC"), (1 << 36) - 1)
    assert "longer" in _refused(data)


@pytest.mark.parametrize("told", [0, 16000])
def test_a_bomb_is_never_decoded_beyond_what_its_header_tells(told):
    bomb = _with_flac_length(_file(np.zeros((20 * 60 * 16000, 2), np.int16), 16000, "FLAC"), told)
    assert len(bomb) < 200_000
    tracemalloc.start()
    try:
        if told:
            assert len(decode_audio(bomb, 16000, 60)) == told
        else:
            assert "length" in _refused(bomb)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("num_channels", "rate"), [(33, 16000), (1, 1000), (1, 500_000)])
def test_absurd_headers(num_channels, rate):
    _refused(_file(np.zeros((100, num_channels), np.float32), rate, "WAV", "FLOAT"))


def test_damaged_files_never_raise_anything_else():
    rng = np.random.default_rng(1)
    files = [_file(_tone(3000, 16000), 16000, *kind) for kind in
             [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None)]]
    codes = set()
    for _ in range(150):
        data = bytearray(files[rng.integers(len(files))])
        for position in rng.integers(0, min(len(data), 400), 8):
            data[position] = rng.integers(256)
        try:
            assert np.isfinite(decode_audio(bytes(data), 16000, 60)).all()
        except RequestError as error:
            codes.add(error.code)
    assert codes == {ErrorCode.INVALID_AUDIO}
