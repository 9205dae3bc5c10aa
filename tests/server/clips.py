"""Small audio files for prompts and references."""

from __future__ import annotations

import io

import numpy as np
import soundfile


def clip(
    seconds: float = 0.7, rate: int = 16_000, channels: int = 1, container: str = "WAV", subtype: str | None = None
) -> bytes:
    """A decaying tone as a file in memory."""
    t = np.arange(int(seconds * rate)) / rate
    tone = 0.3 * np.sin(2 * np.pi * 220 * t) * np.exp(-t)
    samples = np.repeat(tone[:, None], channels, axis=1)
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=container, subtype=subtype)
    return buffer.getvalue()


ODD_CLIPS = {
    "stereo 8-bit wav": lambda: clip(channels=2, subtype="PCM_U8"),
    "44.1 kHz mp3": lambda: clip(rate=44_100, container="MP3"),
    "24-bit flac": lambda: clip(container="FLAC", subtype="PCM_24"),
    "odd length": lambda: clip(seconds=0.70006),
    "ogg": lambda: clip(container="OGG", subtype="VORBIS"),
    "one sample": lambda: clip(seconds=1 / 16_000),
}

BAD_CLIPS = {
    "not audio": lambda: b"this is not audio, however long it may be " * 100,
    "empty": lambda: b"",
    "zero samples": lambda: clip(seconds=0),
    "over 60 s": lambda: clip(seconds=60.5, rate=8_000),
    "cut header": lambda: clip()[:20],
}
