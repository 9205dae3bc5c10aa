"""`say` against a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import wave
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile

from tests.cli.conftest import COMMAND, LIMIT_S, ROOT, environment
from voxcpm_client import stream_text, synthesize
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


def test_mp3_by_suffix(cli_here: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "speech.MP3"
    assert cli_here("say", "Hello there.", "-o", file, "--url", triton_server.grpc_url, *FAST).returncode == 0
    assert soundfile.info(file).format == "MP3"


def test_another_model_of_the_server(cli_here: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    to_file = ("-o", tmp_path / "speech.mp3", "--url", triton_server.grpc_url)
    assert cli_here("say", "Hello there.", "--model", "voxcpm_mp3", *to_file, *FAST).returncode == 0
    assert soundfile.info(tmp_path / "speech.mp3").format == "MP3"
    unknown = cli_here("say", "Hello there.", "--model", "voxcpm_of_another_name", *to_file, *FAST)
    assert (unknown.returncode, b"voxcpm_of_another_name" in unknown.stderr) == (os.EX_CONFIG, True)


@pytest.mark.parametrize(("suffix", "container"), [("flac", "FLAC"), ("opus", "OGG")])
def test_whole_formats_at_another_rate(
    cli_here: Cli, triton_server: TritonServer, tmp_path: Path, suffix: str, container: str
) -> None:
    file = tmp_path / f"speech.{suffix}"
    done = cli_here("say", "Hello.", "-o", file, "--url", triton_server.grpc_url, "--sample-rate", "24000", *FAST)
    assert done.returncode == 0, done.stderr
    assert (soundfile.info(file).format, soundfile.info(file).samplerate) == (container, 24000)


def test_bitrate_of_mp3(cli_here: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    sizes = []
    for bitrate in ("64", "128"):
        file = tmp_path / f"{bitrate}.mp3"
        done = cli_here("say", "Hello there.", "-o", file, "--url", triton_server.grpc_url, "--bitrate", bitrate, *FAST)
        assert done.returncode == 0, done.stderr
        sizes.append(file.stat().st_size)
    assert sizes[1] == pytest.approx(2 * sizes[0], rel=0.1)


def test_standard_output_is_audio_alone(cli: Cli, triton_server: TritonServer) -> None:
    done = cli("say", "Hello there.", "-o", "-", "--url", triton_server.grpc_url, *FAST)
    speech = synthesize("Hello there.", url=triton_server.grpc_url, **SAME)
    assert done.stdout == speech.audio
    assert b"seed 4" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("--temperature", "-1"), b"[INVALID_PARAMETER]", os.EX_DATAERR),
        (("--prompt-text", "words"), b"[CONFLICTING_INPUTS]", os.EX_DATAERR),
        (("--prompt-audio", "nowhere.wav", "--prompt-text", "words"), b"nowhere.wav: No such file", 1),
        (("--seed", str(2**63)), b"seed", os.EX_DATAERR),
        (("--format", "mp3", "--bitrate", "7"), b"bitrate", os.EX_DATAERR),
        (("--format", "mp3", "--play"), b"--format mp3 cannot be played", os.EX_DATAERR),
        (("--url", "127.0.0.1:9"), b"no answer from a Triton server at 127.0.0.1:9", os.EX_UNAVAILABLE),
        (("--url", "http://localhost:8000"), b"gRPC address, host:port", os.EX_USAGE),
        (("--timeout-s", "0.001"), b"not done within timeout_s", os.EX_TEMPFAIL),
    ],
)
def test_failures_are_one_line_and_leave_the_file_alone(
    cli_here: Cli, triton_server: TritonServer, tmp_path: Path, arguments: tuple[str, ...], words: bytes, status: int
) -> None:
    file = tmp_path / "speech.wav"
    file.write_bytes(b"precious")
    done = cli_here("say", "Hello there.", "-o", file, "--url", triton_server.grpc_url, *arguments)
    assert done.returncode == status
    (line,) = done.stderr.splitlines()
    assert words in line
    assert file.read_bytes() == b"precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["speech.wav"]


def test_unknown_suffix(cli_here: Cli) -> None:
    done = cli_here("say", "Hello there.", "-o", "speech.txt")
    assert done.returncode == 1
    assert b"'.txt'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


TEXT = "This is the first sentence. And this is the second one of them. 今天天气很好。"


def test_standard_input_comes_sentence_by_sentence(cli: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    expected = b"".join(chunk.audio for chunk in stream_text(TEXT, url=triton_server.grpc_url, **SAME))
    piped = cli("say", "-", "-o", "-", "--url", triton_server.grpc_url, *FAST, given=TEXT.encode())
    assert piped.stdout == expected
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8-sig")
    file = tmp_path / "speech.wav"
    done = cli("say", "--file", tmp_path / "text.txt", "-o", file, "--url", triton_server.grpc_url, *FAST)
    assert done.returncode == 0, done.stderr
    with wave.open(str(file)) as reader:
        assert reader.readframes(reader.getnframes()) == expected


def test_speech_begins_before_standard_input_ends(triton_server: TritonServer) -> None:
    command = [*COMMAND, "say", "-", "-o", "-", "--url", triton_server.grpc_url, *FAST]
    with subprocess.Popen(command, env=environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as say:
        assert say.stdin is not None
        assert say.stdout is not None
        say.stdin.write(b"This is the first sentence. And")
        say.stdin.flush()
        assert len(say.stdout.read(1000)) == 1000
        rest, _ = say.communicate(b" so on.", timeout=LIMIT_S)
    assert say.returncode == 0
    assert len(rest) > 1000


@pytest.mark.parametrize(
    ("arguments", "given", "words", "status"),
    [
        (("say", "-", "-o", "speech.mp3"), b"Hello.", b"sentences are joined as", os.EX_DATAERR),
        (("say", "-", "-o", "-"), b"\xff\xfe", b"the text is not UTF-8", os.EX_DATAERR),
        (("say", "-", "-o", "-"), b" \n", b"nothing that can be spoken", os.EX_DATAERR),
        (("say", "--file", "nowhere.txt", "-o", "-"), b"", b"nowhere.txt: No such file", 1),
        (("say", "long " * 10_000, "-o", "-"), b"", b"--file says a long text sentence by sentence", os.EX_DATAERR),
        (("say", "-o", "-"), b"", b"give either TEXT or --file", 2),
        (("say", "Hello.", "--file", "text.txt", "-o", "-"), b"", b"give either TEXT or --file", 2),
    ],
)
def test_texts_that_cannot_be_said(
    cli: Cli, cli_here: Cli, triton_server: TritonServer,
    arguments: tuple[str, ...], given: bytes, words: bytes, status: int,
) -> None:
    whole = (*arguments, "--url", triton_server.grpc_url)
    done = cli(*whole, given=given) if given else cli_here(*whole)
    assert words in done.stderr
    assert done.returncode == status
    assert status == 2 or len(done.stderr.splitlines()) == 1


def _put_player(folder: Path) -> str:
    """A stand-in for a player program, that keeps what it gets; returns a PATH with it alone."""
    (folder / "bin").mkdir()
    (folder / "bin" / "aplay").write_text(f"#!/bin/sh\nexec /bin/cat > {folder}/played\n")
    (folder / "bin" / "aplay").chmod(0o755)
    return str(folder / "bin")


def test_without_a_file_it_plays(cli: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    done = cli("say", "Hello there.", "--url", triton_server.grpc_url, *FAST, PATH=_put_player(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "played").read_bytes() == synthesize("Hello there.", url=triton_server.grpc_url, **SAME).audio
    assert done.stdout == b""
    (line,) = done.stderr.splitlines()
    assert b"underruns" in line


def test_a_file_is_played_too(cli: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "speech.wav"
    to_file = ("-o", file, "--play", "--url", triton_server.grpc_url)
    done = cli("say", "Hello there.", *to_file, *FAST, PATH=_put_player(tmp_path))
    assert done.returncode == 0, done.stderr
    with wave.open(str(file)) as reader:
        assert reader.readframes(reader.getnframes()) == (tmp_path / "played").read_bytes() != b""


def test_nothing_to_play_with(cli: Cli, tmp_path: Path) -> None:
    done = cli("say", "Hello there.", "--url", "127.0.0.1:9", PATH=str(tmp_path))
    assert done.returncode == os.EX_OSERR
    (line,) = done.stderr.splitlines()
    assert b"pip install 'voxcpm-triton[play]'" in line


def test_a_reader_that_leaves_is_no_message(triton_server: TritonServer) -> None:
    said = " ".join([*COMMAND, "say", "'Hello there.'", "-o", "-", "--url", triton_server.grpc_url, *FAST])
    script = f"set -o pipefail; {said} | head -c 10"
    done = subprocess.run(["bash", "-c", script], env=environment(), cwd=ROOT, capture_output=True, timeout=LIMIT_S)
    assert (done.returncode, len(done.stdout), done.stderr) == (1, 10, b"")


def test_an_interrupt_leaves_nothing_behind(triton_server: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "speech.wav"
    command = [*COMMAND, "say", "Hello there.", "-o", str(file), "--url", triton_server.grpc_url]
    long = ("--max-length", "2000", "--no-length-cap", "--ignore-stop")
    with subprocess.Popen([*command, *long], env=environment(), cwd=ROOT, stderr=subprocess.PIPE) as say:
        while not list(tmp_path.iterdir()):
            time.sleep(0.05)
        time.sleep(1)
        say.send_signal(signal.SIGINT)
        _, said = say.communicate(timeout=LIMIT_S)
    assert say.returncode == 130
    assert b"Traceback" not in said
    assert list(tmp_path.iterdir()) == []
