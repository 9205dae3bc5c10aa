"""`say` against a real server."""

from __future__ import annotations

import subprocess
import wave
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from voxcpm_client import synthesize
from voxcpm_client.server import TritonServer

pytestmark = pytest.mark.server

Cli = Callable[..., subprocess.CompletedProcess[bytes]]
FAST = ("--seed", "4", "--max-length", "3", "--timesteps", "2")
SAME = {"seed": 4, "max_length": 3, "inference_timesteps": 2}


def test_wav_file_has_exact_sizes(cli: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "speech.wav"
    done = cli("say", "Hello there.", "-o", file, "--url", triton_server.grpc_url, *FAST)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b""
    speech = synthesize("Hello there.", url=triton_server.grpc_url, format="pcm_s16le", **SAME)
    with wave.open(str(file)) as reader:
        assert reader.getnframes() == speech.num_samples
        assert reader.readframes(speech.num_samples) == speech.audio
    (line,) = done.stderr.splitlines()
    for words in (b"TTFA", b"RTF", b"seed 4"):
        assert words in line


def test_mp3_by_suffix(cli: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "speech.MP3"
    assert cli("say", "Hello there.", "-o", file, "--url", triton_server.grpc_url, *FAST).returncode == 0
    assert soundfile.info(file).format == "MP3"


@pytest.mark.parametrize(("suffix", "container"), [("flac", "FLAC"), ("opus", "OGG")])
def test_whole_formats_at_another_rate(
    cli: Cli, triton_server: TritonServer, tmp_path: Path, suffix: str, container: str
) -> None:
    file = tmp_path / f"speech.{suffix}"
    done = cli("say", "Hello.", "-o", file, "--url", triton_server.grpc_url, "--sample-rate", "24000", *FAST)
    assert done.returncode == 0, done.stderr
    assert (soundfile.info(file).format, soundfile.info(file).samplerate) == (container, 24000)


def test_bitrate_of_mp3(cli: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    sizes = []
    for bitrate in ("64", "128"):
        file = tmp_path / f"{bitrate}.mp3"
        done = cli("say", "Hello there.", "-o", file, "--url", triton_server.grpc_url, "--bitrate", bitrate, *FAST)
        assert done.returncode == 0, done.stderr
        sizes.append(file.stat().st_size)
    assert sizes[1] == pytest.approx(2 * sizes[0], rel=0.1)


def test_standard_output_is_audio_alone(cli: Cli, triton_server: TritonServer) -> None:
    done = cli("say", "Hello there.", "-o", "-", "--url", triton_server.grpc_url, *FAST)
    speech = synthesize("Hello there.", url=triton_server.grpc_url, **SAME)
    assert done.stdout == speech.audio
    assert b"seed 4" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--temperature", "-1"), b"[INVALID_PARAMETER]"),
        (("--prompt-text", "words"), b"[CONFLICTING_INPUTS]"),
        (("--prompt-audio", "nowhere.wav", "--prompt-text", "words"), b"nowhere.wav"),
        (("--seed", str(2**63)), b"seed"),
        (("--format", "mp3", "--bitrate", "7"), b"bitrate"),
        (("--url", "127.0.0.1:9"), b"no answer from a Triton server at 127.0.0.1:9"),
        (("--url", "http://localhost:8000"), b"gRPC address, host:port"),
    ],
)
def test_failures_are_one_line_and_leave_the_file_alone(
    cli: Cli, triton_server: TritonServer, tmp_path: Path, arguments: tuple[str, ...], words: bytes
) -> None:
    file = tmp_path / "speech.wav"
    file.write_bytes(b"precious")
    done = cli("say", "Hello there.", "-o", file, "--url", triton_server.grpc_url, *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert words in line
    assert file.read_bytes() == b"precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["speech.wav"]


def test_unknown_suffix(cli: Cli) -> None:
    done = cli("say", "Hello there.", "-o", "speech.txt")
    assert done.returncode == 1
    assert b"'.txt'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
