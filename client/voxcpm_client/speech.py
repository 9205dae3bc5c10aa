"""Gathering the chunks of a stream into one utterance, with its timing."""

from __future__ import annotations

import time

import numpy as np

from voxcpm_client.ensemble import DEFAULT_FORMAT
from voxcpm_client.errors import StreamBroken
from voxcpm_client.playhead import Playhead
from voxcpm_client.types import Chunk, FloatArray, Speech
from voxcpm_client.wav import with_exact_sizes


class SpeechCollector:
    """Make it when the request is sent and `add` every chunk; `keep_audio=False` measures only."""

    def __init__(self, audio_format: str | None, keep_audio: bool = True) -> None:
        self._format = audio_format or DEFAULT_FORMAT
        self._keep_audio = keep_audio
        self._started_s = time.perf_counter()
        self._first_audio_s: float | None = None
        self._playhead = Playhead()
        self._audio: list[bytes] = []
        self._latents: list[FloatArray] = []
        self._last: Chunk | None = None
        self.num_samples = 0

    def add(self, chunk: Chunk) -> None:
        now_s = time.perf_counter()
        if self._first_audio_s is None and chunk.audio:
            self._first_audio_s = now_s
        if self._first_audio_s is not None:
            self._playhead.add(now_s, chunk.duration_s)
        if self._keep_audio:
            self._audio.append(chunk.audio)
        if chunk.latents is not None:
            self._latents.append(chunk.latents)
        self.num_samples += chunk.num_samples
        self._last = chunk

    def speech(self) -> Speech:
        """The utterance, once its stream has ended. Raises StreamBroken when it holds no audio at all."""
        ended_s = time.perf_counter()
        last = self._last
        if last is None or self._first_audio_s is None:
            raise StreamBroken("the stream ended without any audio")
        audio = b"".join(self._audio)
        return Speech(
            audio=with_exact_sizes(audio) if self._format == "wav" else audio,
            format=self._format,
            num_samples=self.num_samples,
            sample_rate=last.sample_rate,
            finish_reason=last.finish_reason,
            seed=last.seed,
            request_id=last.request_id,
            latents=np.concatenate(self._latents) if self._latents else None,
            ttfa_ms=(self._first_audio_s - self._started_s) * 1000,
            num_underruns=self._playhead.num_underruns,
            wall_ms=(ended_s - self._started_s) * 1000,
        )
