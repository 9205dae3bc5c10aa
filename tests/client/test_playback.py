"""Playing through a program: a stand-in on PATH takes a real pipe and keeps what it gets."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
import types
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client.cancellations import wait_for_threads
from voxcpm_client import Chunk, errors, play
from voxcpm_client.playback import find_player, played
from voxcpm_client.speech import SpeechCollector

RATE = 16000
LIMIT_S = 5.0
KEEPING = """#!{python}
import sys, pathlib
folder = pathlib.Path({folder!r})
(folder / "arguments").write_text("\\n".join(sys.argv[1:]))
(folder / "played").write_bytes(sys.stdin.buffer.read())
"""
FAILING = """#!/bin/sh
head -c 100 > /dev/null
echo "cannot find card '0'" >&2
exit 3
"""
STUCK = """#!/bin/sh
echo $$ > {folder}/pid
exec sleep 60
"""

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """`install("aplay", KEEPING)` makes that the only player here; what it keeps lies in tmp_path."""
    monkeypatch.setitem(sys.modules, "sounddevice", None)  # as where it is not installed
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("head", "sleep", "sh"):
        (folder / tool).symlink_to(Path("/bin") / tool)
    monkeypatch.setenv("PATH", str(folder))

    def put(name: str, script: str) -> None:
        (folder / name).write_text(script.format(python=sys.executable, folder=str(tmp_path)))
        (folder / name).chmod(0o755)

    return put


def _chunks(num_chunks: int = 3, num_samples: int = 100, header: bytes = b"") -> Iterator[Chunk]:
    for index in range(num_chunks):
        audio = bytes([index % 256]) * 2 * num_samples
        is_last = index == num_chunks - 1
        yield Chunk((header if index == 0 else b"") + audio, index, num_samples, RATE, is_last, "stop", 1, "r")


PLAYED = b"".join(bytes([index]) * 200 for index in range(3))


@pytest.mark.parametrize("header", [b"", b"RIFF" + bytes(40)], ids=["pcm", "wav"])
@pytest.mark.parametrize("program", ["aplay", "paplay"])
def test_samples_go_to_the_program(tmp_path: Path, install: Install, program: str, header: bytes) -> None:
    install(program, KEEPING)
    speech = play(_chunks(header=header))
    assert (tmp_path / "played").read_bytes() == PLAYED
    assert str(RATE) in (tmp_path / "arguments").read_text()
    assert speech.num_samples == 300


def test_ffplay_gets_a_wav(tmp_path: Path, install: Install) -> None:
    install("ffplay", KEEPING)
    play(_chunks())
    with wave.open(io.BytesIO((tmp_path / "played").read_bytes())) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (RATE, 1, 2)
        assert reader.readframes(300) == PLAYED


def test_nothing_to_play_with(install: Install) -> None:
    def never() -> Iterator[Chunk]:
        raise AssertionError("the request was sent")
        yield

    with pytest.raises(errors.NoPlayer, match=r"paplay, aplay, ffplay, or pip install 'voxcpm-triton\[play\]'"):
        play(never())


def test_a_program_that_fails(install: Install) -> None:
    install("aplay", FAILING)
    with pytest.raises(errors.NoPlayer, match=r"aplay .*exit status 3.*: cannot find card '0'"):
        play(_chunks(20, 16000))
    with pytest.raises(errors.NoPlayer, match="exit status 3"):
        play(_chunks(1, 100))


def _wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def _stuck_player(folder: Path) -> int:
    """Wait until STUCK runs; its process id."""
    deadline_s = time.monotonic() + LIMIT_S
    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return int((folder / "pid").read_text())


def test_leaving_early_is_silent_at_once(tmp_path: Path, install: Install) -> None:
    install("aplay", STUCK)
    threads = threading.active_count()
    chunks = played(_chunks(20, 1000), find_player())
    for _ in range(5):  # fewer than wait for a player, so that nothing blocks
        next(chunks)
    pid = _stuck_player(tmp_path)
    started_s = time.monotonic()
    chunks.close()
    assert time.monotonic() - started_s < LIMIT_S
    _wait_until_gone(pid)
    wait_for_threads(threads)


def test_a_failure_of_the_stream_stops_the_player(tmp_path: Path, install: Install) -> None:
    install("aplay", STUCK)

    def failing() -> Iterator[Chunk]:
        yield from _chunks(2)
        _stuck_player(tmp_path)
        raise errors.GapTimeout("silence")

    with pytest.raises(errors.GapTimeout):
        play(failing())
    _wait_until_gone(_stuck_player(tmp_path))


def test_formats_that_cannot_be_played(install: Install) -> None:
    install("aplay", KEEPING)
    with pytest.raises(errors.InvalidParameter, match="pcm_s16le and wav"):
        play(iter([Chunk(b"\xff\xfb\x90", 0, 1152, RATE, True, "stop", 1, "r")]))


def test_speech_is_not_taken_far_ahead_of_what_is_heard(tmp_path: Path, install: Install) -> None:
    """A program that reads nothing holds a pipe full of samples; then the stream is left alone."""
    install("aplay", STUCK)
    taken: list[Chunk] = []

    def take() -> None:
        with pytest.raises(errors.NoPlayer, match="ended before the speech did"):
            taken.extend(played(_chunks(1000, 16000), find_player()))

    reader = threading.Thread(target=take, daemon=True)
    reader.start()
    time.sleep(1)
    count = len(taken)
    time.sleep(0.3)
    assert len(taken) == count < 20
    os.kill(_stuck_player(tmp_path), signal.SIGKILL)
    reader.join(timeout=LIMIT_S)
    assert not reader.is_alive()


def test_underruns_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("voxcpm_client.speech.time.perf_counter", lambda: now_s)
    collector = SpeechCollector(None)
    for chunk in _chunks(5, 1600):  # a tenth of a second each
        now_s += 0.35 if chunk.index in (2, 4) else 0.0
        collector.add(chunk)
    assert collector.speech().num_underruns == 2


def test_a_device_is_preferred(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine of the tests has a sound device: this module stands in for `sounddevice` at its own border."""
    calls: list[object] = []

    class Stream:
        def __init__(self, **settings: object) -> None:
            calls.append(settings)

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arguments: calls.append((name, *map(len, arguments)))

    module = types.ModuleType("sounddevice")
    module.RawOutputStream, module.PortAudioError = Stream, OSError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    monkeypatch.delitem(sys.modules, "voxcpm_client.playback.device", raising=False)
    install("aplay", FAILING)
    play(_chunks(2, 1000))
    monkeypatch.delitem(sys.modules, "voxcpm_client.playback.device", raising=False)
    assert calls[0] == {"samplerate": RATE, "channels": 1, "dtype": "int16"}
    names = [call[0] for call in calls[1:] if isinstance(call, tuple)]
    assert names == ["start", "write", "write", "write", "write", "stop", "abort", "close"]
    assert sum(call[1] for call in calls[1:] if isinstance(call, tuple) and call[0] == "write") == 4000
