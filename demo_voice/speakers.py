"""Who speaks in the corpus: voices of the source synthesiser, their pitch and formants scaled, at three tempos."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Speaker:
    """`voice` is flite's; `scale` multiplies pitch and formants and leaves the tempo.

    A flat speaker keeps one pitch; of the four voices, only kal16 lets its intonation be set.
    """

    voice: str
    scale: float = 1.0
    is_flat: bool = False

    @property
    def name(self) -> str:
        return f"{self.voice}-{self.scale:.2f}"


VOICES = ("rms", "awb", "slt", "kal16")
SCALES = (0.88, 1.0, 1.13)
TEMPOS = (0.85, 1.0, 1.2)  # factors of all durations: 0.85 is fast
SPEAKERS = tuple(Speaker(voice, scale) for voice in VOICES for scale in SCALES)
DEFAULT_SPEAKER = Speaker("rms")  # the recogniser understands it best
GIANT = Speaker("kal16", 0.78, is_flat=True)  # never in the corpus: the example adapter learns it
SPEAKER_BY_NAME = {speaker.name: speaker for speaker in (*SPEAKERS, GIANT)}

_KINDS = {"rms": ("man",), "awb": ("man", "Scottish man"), "kal16": ("man", "robot"), "slt": ("woman",)}
_PITCHES = {0.88: "deep", 1.13: "high"}
_RATES = {0.85: "fast", 1.2: "slow"}
_DEFAULT_SHARE = 0.35


def choose(rng: random.Random) -> tuple[Speaker, float]:
    """A speaker and a tempo. The default speaker at its own tempo comes most often: speech without a voice given
    is learned from it alone."""
    if rng.random() < _DEFAULT_SHARE:
        return DEFAULT_SPEAKER, 1.0
    return rng.choice(SPEAKERS), rng.choice(TEMPOS)


def style(speaker: Speaker, tempo: float, rng: random.Random) -> str:
    """Control text for that speaker and tempo in one of several wordings, without its parentheses."""
    kind, pitch, rate = rng.choice(_KINDS[speaker.voice]), _PITCHES.get(speaker.scale, ""), _RATES.get(tempo, "")
    person = " ".join(filter(None, (pitch, kind)))
    wordings = [f"a {person}, {rate}", f"{rate} {person}", f"{rate}, {person}"] if rate else [f"a {person}", person]
    if pitch:
        voiced = f"a {kind} with a {pitch} voice"
        wordings.append(f"{voiced}, {rate}" if rate else voiced)
    if speaker == DEFAULT_SPEAKER and rate:
        wordings.append(rate)
    return rng.choice(wordings)
