"""What the command line says of itself."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Callable

Cli = Callable[..., subprocess.CompletedProcess[bytes]]


def _words(done: subprocess.CompletedProcess[bytes]) -> str:
    """The help text without its frames and line breaks."""
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.decode().replace("\u2502", " ").replace("|", " ").split())


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split() == ["voxcpm-triton", importlib.metadata.version("voxcpm-triton")]


def test_help_says_what_defaults_do(cli: Cli) -> None:
    said = _words(cli("say", "--help"))
    assert "On by default: end at 6 x tokens + 10 patches, also where --max-length allows more." in said
    assert "Any 64-bit integer" in said


def test_help_loses_no_word_to_markup(cli: Cli) -> None:
    assert "PNG file; needs the extra 'picture'." in _words(cli("bench", "--help"))


def test_help_of_everything(cli: Cli) -> None:
    said = _words(cli("--help"))
    own = ("serve", "say", "status", "cancel", "encode", "voices", "loras", "bench", "demo", "make-checkpoint")
    for command in (*own, "convert", "--version"):
        assert command in said
