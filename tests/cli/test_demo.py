"""`demo`, which `make demo` runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from tests.server_process import require_installation

pytestmark = pytest.mark.server

MP3_MARGIN_S = (1105 + 2 * 576) / 16000  # what an mp3 has before the speech, and its last frame filled up


def test_a_missing_folder_is_reported_before_the_start(
    cli: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path
) -> None:
    done = cli("demo", "--folder", tmp_path / "nowhere")
    assert done.returncode == 1
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert "cannot write into folder" in line
    assert "nowhere" in line


def test_demo(cli: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path) -> None:
    require_installation(dict(os.environ))
    done = cli("demo", "--folder", tmp_path, "--device", "cpu")
    assert done.returncode == 0, done.stderr
    wav, mp3 = soundfile.info(tmp_path / "demo.wav"), soundfile.info(tmp_path / "demo.mp3")
    assert (wav.format, mp3.format) == ("WAV", "MP3")
    assert wav.samplerate == mp3.samplerate == 16000
    assert wav.duration < mp3.duration < wav.duration + MP3_MARGIN_S
    said = done.stdout.decode()
    assert done.stderr == b""
    for words in ("a small English voice", "TTFA", "RTF", str(tmp_path / "demo.wav"), str(tmp_path / "demo.mp3")):
        assert words in said
