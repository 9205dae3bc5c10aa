"""Speech of a checkpoint, through the product's own Python interface."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import soxr

from demo_voice.flite import PATCH_SAMPLES, SAMPLE_RATE_HZ, Pcm, say
from demo_voice.speakers import DEFAULT_SPEAKER
from voxcpm_core.api import SyncPool
from voxcpm_core.audio.wav import WholeWavEncoder
from voxcpm_core.types import FloatArray

_NUM_STREAMS = 16
_LONGEST = 1.6  # of the source's length: a runaway shows by then


@dataclass(frozen=True)
class Spoken:
    """A text to be said, and how: with a reference or a prompt, latents that `encode` made."""

    text: str
    seed: int
    source: Pcm
    prompt_text: str = ""
    prompt: bytes | None = None
    reference: bytes | None = None


def source_speech(texts: Sequence[str]) -> list[Pcm]:
    """What the source synthesiser makes of the texts, in the default voice."""
    return [say(text, DEFAULT_SPEAKER, 1.0) for text in texts]


def duration_s(pcm: Pcm) -> float:
    return len(pcm) / SAMPLE_RATE_HZ


def synthesise_all(pool: SyncPool, wanted: Sequence[Spoken]) -> list[Pcm]:
    """int16 at 16 kHz for each, in order; many at once, which changes no sample."""
    sample_rate_hz = pool.get_model_info()["sample_rate"]

    def synthesise(spoken: Spoken) -> Pcm:
        max_patches = int(_LONGEST * len(spoken.source) / PATCH_SAMPLES) + 2
        chunks = list(pool.generate(
            spoken.text, spoken.prompt, spoken.prompt_text, max_generate_length=max_patches,
            ref_audio_latents=spoken.reference, seed=spoken.seed,
        ))
        return to_pcm(np.concatenate(chunks), sample_rate_hz)

    with ThreadPoolExecutor(_NUM_STREAMS) as threads:
        return list(threads.map(synthesise, wanted))


def encode(pool: SyncPool, pcm: Pcm, role: str) -> bytes:
    """Latents of source speech as a "prompt" or a "reference"."""
    encoder = WholeWavEncoder(SAMPLE_RATE_HZ)
    encoder.encode(pcm.astype(np.float32) / 32767)
    return pool.encode_latents(encoder.finish(), "wav", role)


def to_pcm(audio: FloatArray, sample_rate_hz: int) -> Pcm:
    """float32 [n] in [-1, 1] at any rate as int16 at 16 kHz."""
    resampled = soxr.resample(audio, sample_rate_hz, SAMPLE_RATE_HZ)
    return np.rint(np.clip(resampled, -1, 1) * 32767).astype(np.int16)
