"""Where `say` writes: a file, or standard output for a player behind a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from voxcpm_client.speech import SpeechCollector
from voxcpm_client.types import Chunk, Speech
from voxcpm_client.wav import fill_in_sizes

_FORMATS = {".wav": "wav", ".mp3": "mp3", ".pcm": "pcm_s16le", ".raw": "pcm_s16le", ".s16": "pcm_s16le"}
STANDARD_OUTPUT = "-"


def format_of(target: str) -> str:
    """The audio format that the file's suffix names. Raises ValueError for one that names none."""
    if target == STANDARD_OUTPUT:
        return "pcm_s16le"
    suffix = Path(target).suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(f"{target}: no format for suffix {suffix!r}; use one of {', '.join(_FORMATS)} or --format")
    return _FORMATS[suffix]


def write(chunks: Iterable[Chunk], target: str, audio_format: str) -> Speech:
    """Write a stream as it comes and return its measures. A file is opened at the first chunk, not before."""
    collector = SpeechCollector(audio_format, keep_audio=False)
    if target == STANDARD_OUTPUT:
        for chunk in chunks:
            collector.add(chunk)
            sys.stdout.buffer.write(chunk.audio)
            sys.stdout.buffer.flush()
        return collector.speech()
    file = None
    try:
        for chunk in chunks:
            collector.add(chunk)
            file = file or Path(target).open("w+b")  # noqa: SIM115
            file.write(chunk.audio)
            file.flush()
        speech = collector.speech()
        if file is not None and audio_format == "wav":
            fill_in_sizes(file)
    finally:
        if file is not None:
            file.close()
    return speech
