"""Uploaded audio files to mono float32 at the rate that the model's encoder takes."""

from __future__ import annotations

import io

import numpy as np
import soundfile
import soxr

from voxcpm_core.audio.condition import MAX_PEAK
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.types import FloatArray

FORMATS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3")
MAX_CHANNELS = 32
MIN_RATE, MAX_RATE = 4_000, 384_000  # Hz
_BLOCK_FRAMES = 65_536
_UNKNOWN_FRAMES = 1 << 62  # libsndfile counts at least so many frames when a flac header leaves the length open


def decode_audio(data: bytes, sample_rate: int, max_seconds: float) -> FloatArray:
    """Decode a whole wav, flac, ogg or mp3 file, detected by its content, to mono at `sample_rate`.

    Returns [samples] float32. Raises RequestError INVALID_AUDIO for anything else, for no samples, non-finite ones,
    and for more than `max_seconds`, which the header tells before anything is decoded.
    """
    try:
        with soundfile.SoundFile(_Upload(data)) as file:
            _check_header(file, max_seconds)
            rate = int(file.samplerate)
            mono = _read_mono(file)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError):
        raise _invalid("the data cannot be decoded as wav, flac, ogg or mp3") from None
    if not np.isfinite(mono).all():
        raise _invalid("a sample is not finite")
    if mono.size and np.abs(mono).max() > MAX_PEAK:
        raise _invalid(f"a sample is beyond {MAX_PEAK:g}, where full scale is 1")
    if rate != sample_rate:
        mono = soxr.resample(mono, rate, sample_rate, quality="HQ")
    if not mono.size:
        raise _invalid("the file holds no samples")
    return np.ascontiguousarray(mono, np.float32)


class _Upload(io.BytesIO):
    """A file in memory in which a damaged header cannot seek to before the start."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: len(self.getbuffer())}[whence]
        return super().seek(max(0, start + offset))


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_AUDIO, message)


def _check_header(file: soundfile.SoundFile, max_seconds: float) -> None:
    if file.format not in FORMATS:
        raise _invalid("the data is not wav, flac, ogg or mp3")
    if file.channels > MAX_CHANNELS:
        raise _invalid(f"{file.channels} channels, at most {MAX_CHANNELS} are accepted")
    if not MIN_RATE <= file.samplerate <= MAX_RATE:
        raise _invalid(f"a sample rate of {file.samplerate} Hz, accepted are {MIN_RATE} to {MAX_RATE}")
    if file.frames >= _UNKNOWN_FRAMES:
        raise _invalid("the header does not tell the length")
    if file.frames > max_seconds * file.samplerate:
        raise _invalid(f"the audio is longer than {max_seconds:g} s")


def _read_mono(file: soundfile.SoundFile) -> FloatArray:
    """At most as many frames as the header tells, block by block: many channels are never held whole."""
    blocks: list[FloatArray] = [np.empty(0, np.float32)]
    while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):  # [frames, channels]
        with np.errstate(over="ignore", invalid="ignore"):  # huge and non-finite samples are refused by the caller
            blocks.append(block.mean(axis=1, dtype=np.float32))
    return np.concatenate(blocks)
