"""Short clips of the source synthesiser, for machines that lack it."""

from __future__ import annotations

from pathlib import Path

import soundfile

from demo_voice.flite import SAMPLE_RATE_HZ, Pcm

TEXTS = {
    "rms": "Please write your name and address on this card.",
    "kal16": "What do you usually have for breakfast?",
}


def clip(name: str) -> Pcm:
    pcm, sample_rate_hz = soundfile.read(Path(__file__).parent / "audio" / f"{name}.flac", dtype="int16")
    assert sample_rate_hz == SAMPLE_RATE_HZ
    return pcm
