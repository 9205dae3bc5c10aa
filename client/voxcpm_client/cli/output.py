"""Where `say` writes: a file, or standard output for a player behind a pipe."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from voxcpm_client.cli.partial import partial_beside
from voxcpm_client.speech import SpeechCollector
from voxcpm_client.types import Chunk, Speech
from voxcpm_client.wav import fill_in_sizes

_FORMATS = {
    ".wav": "wav", ".mp3": "mp3", ".flac": "flac", ".opus": "opus",
    ".pcm": "pcm_s16le", ".raw": "pcm_s16le", ".s16": "pcm_s16le", ".f32": "pcm_f32le",
}
STANDARD_OUTPUT = "-"


def format_of(target: str) -> str:
    """The audio format that the file's suffix names. Raises ValueError for one that names none."""
    if target == STANDARD_OUTPUT:
        return "pcm_s16le"
    suffix = Path(target).suffix.lower()
    if suffix not in _FORMATS:
        raise ValueError(f"{target}: no format for suffix {suffix!r}; use one of {', '.join(_FORMATS)} or --format")
    return _FORMATS[suffix]


def require_folder(folder: Path) -> None:
    """Raise OSError unless files can be made in `folder`."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"cannot write into folder {folder}: {error.strerror}") from None


def write(chunks: Iterable[Chunk], target: str, audio_format: str) -> Speech:
    """Write a stream as it comes and return its measures.

    A file gets its name when it is whole: what lay there before stays until then. Raises OSError before the first
    chunk is asked for when the file cannot be written.
    """
    if target == STANDARD_OUTPUT:
        return _copy(chunks, sys.stdout.buffer, audio_format)
    path = Path(target).resolve()
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder")
    if path.exists() and not path.is_file():  # a device or a named pipe, which nothing may replace
        with path.open("wb") as file:
            return _copy(chunks, file, audio_format)
    require_folder(path.parent)
    with _replacing(path) as file:
        speech = _copy(chunks, file, audio_format)
        if audio_format == "wav":
            fill_in_sizes(file)
    return speech


def _copy(chunks: Iterable[Chunk], file: BinaryIO, audio_format: str) -> Speech:
    collector = SpeechCollector(audio_format, keep_audio=False)
    for chunk in chunks:
        collector.add(chunk)
        file.write(chunk.audio)
        file.flush()
    return collector.speech()


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path` that takes its place in the end, or is removed on failure."""
    partial = partial_beside(path)
    try:
        with partial.open("w+b") as file:
            if path.exists():
                shutil.copymode(path, partial)
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
