"""What the client gives back, and the options that a request may carry."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
AudioFile = bytes | str | os.PathLike[str]  # the bytes of a wav, flac, ogg or mp3 file, or where it lies


class SpeechOptions(TypedDict, total=False):
    """Inputs of the model besides the text. None counts as not given: the server's default holds."""

    format: str | None  # pcm_s16le (default), pcm_f32le, wav, mp3; flac and opus come as a single chunk
    bitrate: int | None  # of mp3 and opus, in kbit/s; default 128
    sample_rate: int | None  # Hz; default: the model's own
    deadline_ms: int | None  # the request ends with DeadlineExceeded so long after the model received it
    prompt_audio: AudioFile | None  # speech to continue; needs prompt_text, its transcript
    prompt_text: str | None
    prompt_latents: FloatArray | None  # [frames, feat_dim], instead of prompt_audio
    reference_audio: AudioFile | None  # a voice to imitate (VoxCPM2)
    reference_latents: FloatArray | None  # [frames, feat_dim], instead of reference_audio
    voice: str | None  # a registered voice, in the place of the five above
    lora: str | None  # a registered adapter
    cfg_value: float | None  # 0.1 to 10, default 2.0
    temperature: float | None  # 0 to 2, default 1.0
    inference_timesteps: int | None  # from 2, default 10
    min_length: int | None  # patches
    max_length: int | None  # patches
    length_cap: bool | None  # default True: end at 6 * tokens + 10 patches
    ignore_stop: bool | None
    retry_badcase: bool | None  # once more where the length cap was met; the utterance comes as a single chunk
    normalize: bool | None  # numbers and symbols as words, where the server has the libraries
    seed: int | None  # drawn by the server when absent, and returned
    return_latents: bool | None


@dataclass(frozen=True)
class Voice:
    """A registered voice."""

    name: str
    kind: str  # "prompt", "reference" or "both"
    seconds: float  # of audio
    created: str  # UTC, ISO 8601
    made_for: str  # the kind of model that has such latents


@dataclass(frozen=True)
class Lora:
    """A registered adapter."""

    name: str
    rank: int
    source: str  # its folder on the server, or the address that it came from
    created: str  # UTC, ISO 8601


@dataclass(frozen=True)
class Chunk:
    """One piece of a stream; the concatenation of `audio` is the stream in the chosen format."""

    audio: bytes
    index: int
    num_samples: int  # PCM samples in this chunk
    sample_rate: int
    is_last: bool
    finish_reason: str  # "stop" or "length" on the last chunk, "" before
    seed: int
    request_id: str
    latents: FloatArray | None = None  # [frames, feat_dim]

    @property
    def duration_s(self) -> float:
        return self.num_samples / self.sample_rate


@dataclass(frozen=True)
class Speech:
    """A whole utterance and how long it took."""

    audio: bytes
    format: str
    num_samples: int
    sample_rate: int
    finish_reason: str
    seed: int
    request_id: str
    latents: FloatArray | None  # [frames, feat_dim]
    ttfa_ms: float  # from sending the request to the first audio byte
    num_underruns: int  # moments when a player that started at the first chunk had nothing to play
    wall_ms: float  # from sending the request to the end of the stream

    @property
    def duration_s(self) -> float:
        return self.num_samples / self.sample_rate

    @property
    def rtf(self) -> float:
        """Wall time of the request over its audio time."""
        return self.wall_ms / 1000 / self.duration_s
