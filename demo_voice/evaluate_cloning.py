"""Do pitch and tempo follow the voice that was given?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from demo_voice.evaluate_speech import Spoken, duration_s, encode, synthesise_all
from demo_voice.evaluate_text import errors_json
from demo_voice.flite import SAMPLE_RATE_HZ, Pcm, say
from demo_voice.pitch import median_f0_hz
from demo_voice.recognise import recognise_all
from demo_voice.speakers import SPEAKERS, TEMPOS, Speaker
from voxcpm_core.api import SyncPool

Json = dict[str, Any]

_GIVEN_TEXT = "The shop at the corner is open until nine in the evening."


@dataclass(frozen=True)
class Cloned:
    """One speaker: what the voice given has, and what was made of it. Durations are those of the same texts."""

    speaker: str
    tempo: float
    f0_hz: float
    made_f0_hz: float
    duration_s: float
    made_duration_s: float


def evaluate_cloning(pool: SyncPool, texts: Sequence[str], num_processes: int) -> Json:
    """Every speaker of the corpus, as a reference and as a prompt, says the texts."""
    given = [(speaker, TEMPOS[index % len(TEMPOS)]) for index, speaker in enumerate(SPEAKERS)]
    return {mode: _evaluate_mode(pool, mode, given, texts, num_processes) for mode in ("reference", "prompt")}


def _evaluate_mode(
    pool: SyncPool, mode: str, given: Sequence[tuple[Speaker, float]], texts: Sequence[str], num_processes: int
) -> Json:
    sources = [[say(text, speaker, tempo) for text in texts] for speaker, tempo in given]
    wanted = []
    for (speaker, tempo), source in zip(given, sources, strict=True):
        latents = encode(pool, say(_GIVEN_TEXT, speaker, tempo), mode)
        voice = {"reference": latents} if mode == "reference" else {"prompt": latents, "prompt_text": f"{_GIVEN_TEXT} "}
        wanted += [Spoken(text, seed, pcm, **voice) for seed, (text, pcm) in enumerate(zip(texts, source, strict=True))]
    made = synthesise_all(pool, wanted)
    rows = [
        _cloned(speaker, tempo, source, made[index * len(texts) : (index + 1) * len(texts)])
        for index, ((speaker, tempo), source) in enumerate(zip(given, sources, strict=True))
    ]
    return {
        "f0_correlation": correlation([row.f0_hz for row in rows], [row.made_f0_hz for row in rows]),
        "duration_correlation": correlation([row.duration_s for row in rows], [row.made_duration_s for row in rows]),
        **errors_json([spoken.text for spoken in wanted], recognise_all(made, num_processes)),
        "speakers": [asdict(row) for row in rows],
    }


def _cloned(speaker: Speaker, tempo: float, source: Sequence[Pcm], made: Sequence[Pcm]) -> Cloned:
    return Cloned(
        speaker.name,
        tempo,
        median_f0_hz(np.concatenate(source), SAMPLE_RATE_HZ),
        median_f0_hz(np.concatenate(made), SAMPLE_RATE_HZ),
        sum(map(duration_s, source)),
        sum(map(duration_s, made)),
    )


def correlation(expected: Sequence[float], made: Sequence[float]) -> float:
    """Pearson's, of the logarithms; 0 where something has no pitch or all is alike."""
    values = np.array([expected, made], np.float64)
    if (values <= 0).any() or (np.ptp(values, axis=1) == 0).any():
        return 0.0
    return float(np.corrcoef(np.log(values))[0, 1])
