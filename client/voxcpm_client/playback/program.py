"""A player program behind a pipe."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from voxcpm_client.errors import NoPlayer
from voxcpm_client.wav import wav_header


@dataclass(frozen=True)
class Program:
    """How a program is told to play 16-bit mono samples from its standard input."""

    arguments: Callable[[int], list[str]]  # takes the sample rate in Hz
    takes_wav: bool = False


PROGRAMS = {
    "paplay": Program(lambda rate: ["--raw", "--format=s16le", "--channels=1", f"--rate={rate}"]),
    "aplay": Program(lambda rate: ["-q", "-t", "raw", "-f", "S16_LE", "-c", "1", "-r", str(rate), "-"]),
    # As a wav: the options that describe raw samples differ between its versions.
    "ffplay": Program(lambda _rate: ["-loglevel", "error", "-nodisp", "-autoexit", "-i", "-"], takes_wav=True),
}


class ProgramPlayer:
    """A `Player` that writes to the program at `path`."""

    def __init__(self, path: str, program: Program, sample_rate: int) -> None:
        self._path = path
        with ExitStack() as opened:
            self._errors = opened.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                [path, *program.arguments(sample_rate)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C ends it through stop(), not beside this process
            )
            self._cleanup = opened.pop_all()
        if program.takes_wav:
            self.write(wav_header(sample_rate))

    def write(self, samples: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(samples)
            self._process.stdin.flush()
        except BrokenPipeError:
            self._process.wait()
            raise self._failure("ended before the speech did") from None

    def drain(self) -> None:
        self._close_input()
        if self._process.wait() != 0:
            raise self._failure("failed")

    def stop(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._close_input()
        self._process.wait()
        self._cleanup.close()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _failure(self, what: str) -> NoPlayer:
        """The program's own last words, and its exit status."""
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        why = f": {words[-1]}" if words else ""
        return NoPlayer(f"{self._path} {what} (exit status {self._process.returncode}){why}")
