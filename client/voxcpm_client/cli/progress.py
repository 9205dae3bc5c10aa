"""Progress of a stream on stderr, so that standard output stays free for audio."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from voxcpm_client.types import Chunk, Speech


def shown(chunks: Iterable[Chunk], label: str) -> Generator[Chunk, None, None]:
    """Pass `chunks` on while the terminal, if stderr is one, shows how much audio has come."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    is_watched = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=not is_watched) as progress:
        task = progress.add_task(f"{label}: waiting for the first chunk", total=None)
        audio_s = 0.0
        for chunk in chunks:
            audio_s += chunk.duration_s
            progress.update(task, description=f"{label}: {audio_s:.2f} s of audio in {chunk.index + 1} chunks")
            yield chunk


def summary(speech: Speech, is_played: bool = False) -> str:
    """One line about a finished utterance; its speed says nothing where a player held it back."""
    pace = f"underruns {speech.num_underruns}" if is_played else f"RTF {speech.rtf:.3f}"
    return (
        f"{speech.duration_s:.2f} s at {speech.sample_rate} Hz, TTFA {speech.ttfa_ms:.0f} ms, {pace}, "
        f"seed {speech.seed}, ended by {speech.finish_reason}"
    )
