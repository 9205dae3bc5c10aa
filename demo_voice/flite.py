"""Speech of flite, the source synthesiser: 16 kHz, levelled, trimmed and padded to whole patches, with its phones."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import wave
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import soxr

from demo_voice.phones import PHONE_FRAME_SAMPLES, Phones, Segments, parse_segments, phones_at
from demo_voice.speakers import Speaker

Pcm = npt.NDArray[np.int16]

SAMPLE_RATE_HZ = 16000
PATCH_SAMPLES = 2560
_PEAK = 0.7 * 32767
_LEAD_SAMPLES, _TRAIL_SAMPLES = int(0.06 * SAMPLE_RATE_HZ), int(0.08 * SAMPLE_RATE_HZ)
_FRAME_SAMPLES = 80
_SILENCE = 0.02  # of the loudest frame
_QUIETEST = 40.0  # of 32768
_FLAT_STDDEV_HZ = 1.0
_TIMEOUT_S = 60


class Said(NamedTuple):
    """One utterance."""

    pcm: Pcm  # [n], a multiple of PATCH_SAMPLES
    phones: Phones  # [n / PHONE_FRAME_SAMPLES], those in the middle of each frame


class FliteError(Exception):
    """flite is not there, or could not say a text."""


@cache
def flite_command() -> tuple[str, dict[str, str]]:
    """The program (FLITE, or the one on the PATH) and its environment. Raises FliteError when there is none.

    A package that was only unpacked works: the libraries are looked for beside its bin folder.
    """
    program = shutil.which(os.environ.get("FLITE", "flite"))
    if program is None:
        raise FliteError("flite is not installed: apt-get install flite, or set FLITE to the program")
    environment = dict(os.environ)
    libraries = {str(path.parent) for path in Path(program).resolve().parent.parent.glob("lib/**/lib*.so.*")}
    environment["LD_LIBRARY_PATH"] = ":".join([*sorted(libraries), environment.get("LD_LIBRARY_PATH", "")]).strip(":")
    return program, environment


def say(text: str, speaker: Speaker, tempo: float) -> Pcm:
    """A text in that voice: int16 [n], n a multiple of PATCH_SAMPLES, the loudest sample always at the same level.

    60 ms of silence precede the speech; at least 80 ms follow it. Raises FliteError.
    """
    return say_with_phones(text, speaker, tempo).pcm


def say_with_phones(text: str, speaker: Speaker, tempo: float) -> Said:
    """As `say`."""
    if not any(char.isalnum() for char in text):
        raise FliteError("there is nothing to say")  # of which flite makes a breath
    pcm, segments = _synthesised(text, speaker, tempo)
    scaled = soxr.resample(pcm.astype(np.float32), SAMPLE_RATE_HZ * speaker.scale, SAMPLE_RATE_HZ)
    begin, end = speech_span(scaled)
    finished = _finished(scaled, begin, end)
    middles = (np.arange(len(finished) // PHONE_FRAME_SAMPLES) + 0.5) * PHONE_FRAME_SAMPLES
    moments_s = (middles + begin - _LEAD_SAMPLES) / SAMPLE_RATE_HZ * speaker.scale
    return Said(finished, phones_at(segments, moments_s))


def _synthesised(text: str, speaker: Speaker, tempo: float) -> tuple[Pcm, Segments]:
    program, environment = flite_command()
    options = {"duration_stretch": tempo * speaker.scale}
    if speaker.is_flat:
        options["int_f0_target_stddev"] = _FLAT_STDDEV_HZ
    settings = [part for name, value in options.items() for part in ("--setf", f"{name}={value}")]
    with NamedTemporaryFile(suffix=".wav") as wav:
        command = [program, "-voice", speaker.voice, *settings, "-psdur", "-t", text, "-o", wav.name]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise FliteError(f"flite took longer than {_TIMEOUT_S} s") from None
        content = wav.read()
    if done.returncode != 0 or not content:
        raise FliteError(f"flite failed with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    try:
        segments = parse_segments(done.stdout.decode())
    except (KeyError, ValueError) as error:
        raise FliteError(f"flite named a phone that is none: {error}") from None
    with wave.open(io.BytesIO(content)) as file:
        assert file.getframerate() == SAMPLE_RATE_HZ
        return np.frombuffer(file.readframes(file.getnframes()), np.int16), segments


def _finished(audio: npt.NDArray[np.float32], begin: int, end: int) -> Pcm:
    """Level, trim to the speech that begins and ends there, and pad: float [n] to int16 [whole patches]."""
    lead, trail = audio[max(0, begin - _LEAD_SAMPLES) : begin], audio[end : end + _TRAIL_SAMPLES]
    trimmed = np.concatenate([np.zeros(_LEAD_SAMPLES - len(lead), np.float32), lead, audio[begin:end], trail])
    num_samples = whole_patches(_LEAD_SAMPLES + end - begin + _TRAIL_SAMPLES)
    padded = np.pad(trimmed, (0, num_samples - len(trimmed)))
    return np.rint(padded * (_PEAK / np.abs(padded).max())).astype(np.int16)


def speech_span(audio: npt.NDArray[np.float32] | Pcm) -> tuple[int, int]:
    """First and last sample, exclusive, of what is not silence, in units of int16. Raises FliteError for silence."""
    num_frames = len(audio) // _FRAME_SAMPLES
    frames = audio[: num_frames * _FRAME_SAMPLES].astype(np.float64).reshape(num_frames, _FRAME_SAMPLES)
    loudness = np.sqrt((frames**2).mean(axis=1))
    heard = np.flatnonzero(loudness > max(_SILENCE * loudness.max(initial=0.0), _QUIETEST))
    if not len(heard):
        raise FliteError("there is nothing but silence")
    return int(heard[0]) * _FRAME_SAMPLES, (int(heard[-1]) + 1) * _FRAME_SAMPLES


def whole_patches(num_samples: int) -> int:
    """That many samples, rounded up to whole patches."""
    return -(-num_samples // PATCH_SAMPLES) * PATCH_SAMPLES
