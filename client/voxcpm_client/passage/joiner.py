"""Joining the chunks of several utterances into one stream, without a click and without a gap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from voxcpm_client.errors import InvalidParameter, StreamBroken
from voxcpm_client.types import Chunk, FloatArray
from voxcpm_client.wav import wav_header

_DTYPES: dict[str, np.dtype[Any]] = {
    "pcm_s16le": np.dtype("<i2"),
    "wav": np.dtype("<i2"),
    "pcm_f32le": np.dtype("<f4"),
}
_FADE_S = 0.005
_QUIET = 2**-9  # of full scale: what lies below counts as a pause

Samples = npt.NDArray[Any]


def request_format(audio_format: str) -> str:
    """What to ask for, for a passage in `audio_format`. Raises InvalidParameter where streams cannot be joined."""
    if audio_format not in _DTYPES:
        known = ", ".join(_DTYPES)
        message = f"format: sentences are joined as {known}, not as {audio_format!r}; convert the joined file"
        raise InvalidParameter(message)
    return "pcm_s16le" if audio_format == "wav" else audio_format


class PcmJoiner:
    """`begin` every utterance, `feed` it the chunks, `finish` after the last utterance.

    At a join the end of one utterance is faded out and the start of the next faded in over 5 ms, with silence between
    them up to the asked pause, what the first ends with counted in. The last 5 ms of an utterance are held back until
    it is known whether another follows: neither the start nor the end of the whole is faded.
    """

    def __init__(self, audio_format: str, seed: int, keep_latents: bool) -> None:
        """`audio_format` is one that `request_format` takes; chunks will bear `seed`."""
        self._dtype = _DTYPES[audio_format]
        self._needs_header = audio_format == "wav"
        self._seed = seed
        self._keep_latents = keep_latents
        self._latents: list[FloatArray] = []
        self._held: Samples = np.zeros(0, self._dtype)
        self._last: Chunk | None = None
        self._num_chunks = 0
        self._num_quiet = 0  # samples below _QUIET at the end of what came
        self._num_fed: int | None = None  # samples of this utterance; None in the first, which is not faded in
        self._is_cut = False

    def begin(self, pause_ms: int) -> Chunk | None:
        """Say that an utterance follows, after a pause if it is not the first; what ends the one before, if any."""
        if self._last is None:
            return None
        self._num_fed = 0
        num_silent = max(0, pause_ms * self._last.sample_rate // 1000 - self._num_quiet)
        ending = self._scaled(self._held, _fade_in(len(self._held))[::-1])
        self._held = self._held[:0]
        return self._chunk(np.concatenate([ending, np.zeros(num_silent, self._dtype)]))

    def feed(self, chunk: Chunk) -> Chunk | None:
        """What can be played once `chunk` came. Raises StreamBroken for another rate, or samples that do not add up."""
        if self._last is not None and chunk.sample_rate != self._last.sample_rate:
            raise StreamBroken(f"the sample rate changed from {self._last.sample_rate} to {chunk.sample_rate} Hz")
        if len(chunk.audio) != chunk.num_samples * self._dtype.itemsize:
            raise StreamBroken(f"{len(chunk.audio)} bytes of audio came as {chunk.num_samples} samples")
        self._last = chunk
        self._is_cut |= chunk.finish_reason == "length"
        if self._keep_latents and chunk.latents is not None:
            self._latents.append(chunk.latents)
        num_fade = round(_FADE_S * chunk.sample_rate)
        samples = np.frombuffer(chunk.audio, self._dtype)
        self._count_quiet(samples)
        if self._num_fed is not None:
            rest = _fade_in(num_fade)[self._num_fed : self._num_fed + len(samples)]
            self._num_fed += len(samples)
            samples = np.concatenate([self._scaled(samples[: len(rest)], rest), samples[len(rest) :]])
        samples = np.concatenate([self._held, samples])
        num_out = max(0, len(samples) - num_fade)
        self._held = samples[num_out:]
        return self._chunk(samples[:num_out])

    def finish(self) -> Chunk:
        """The last chunk; nothing may follow."""
        held, self._held = self._held, self._held[:0]
        chunk = self._chunk(held, is_last=True)
        assert chunk is not None
        return chunk

    def _chunk(self, samples: Samples, is_last: bool = False) -> Chunk | None:
        if not len(samples) and not is_last:
            return None
        assert self._last is not None
        header = wav_header(self._last.sample_rate) if self._needs_header else b""
        self._needs_header = False
        latents, self._latents = self._latents, []
        self._num_chunks += 1
        return replace(
            self._last,
            audio=header + samples.tobytes(),
            index=self._num_chunks - 1,
            num_samples=len(samples),
            is_last=is_last,
            finish_reason=("length" if self._is_cut else "stop") if is_last else "",
            seed=self._seed,
            latents=np.concatenate(latents) if latents else None,
        )

    def _count_quiet(self, samples: Samples) -> None:
        full_scale = 1.0 if self._dtype.kind == "f" else 2.0**15
        loud = np.flatnonzero(np.abs(samples.astype(np.float32)) >= _QUIET * full_scale)
        self._num_quiet = len(samples) - 1 - int(loud[-1]) if len(loud) else self._num_quiet + len(samples)

    def _scaled(self, samples: Samples, gains: FloatArray) -> Samples:
        scaled: FloatArray = samples * gains
        return (np.rint(scaled) if self._dtype.kind == "i" else scaled).astype(self._dtype)


def _fade_in(num_samples: int) -> FloatArray:
    phase = (np.arange(num_samples, dtype=np.float32) + 0.5) / max(1, num_samples)
    gains: FloatArray = (0.5 - 0.5 * np.cos(np.pi * phase)).astype(np.float32)
    return gains
