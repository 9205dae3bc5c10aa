"""`voices`, `loras`, `status`, `cancel` and `encode` against a real server."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.checkpoint.lora_folder import make_lora
from tests.cli.conftest import ROOT
from tests.noise_voice import NOISE_FOLDER
from tests.server.clips import clip
from tests.server_process import ADMIN_TOKEN
from voxcpm_client import synthesize
from voxcpm_client.server import TritonServer
from voxcpm_core.checkpoint.load import load_config

pytestmark = pytest.mark.server

Cli = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def ask(cli_here: Cli, triton_server: TritonServer, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("VOXCPM_ADMIN_TOKEN", ADMIN_TOKEN)
    return lambda *arguments: cli_here(*arguments, "--url", triton_server.grpc_url)


def test_a_voice_from_a_file_to_a_sentence(ask: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    file = tmp_path / "clip.wav"
    file.write_bytes(clip())
    for role, name in (("prompt", "prompt.npy"), ("reference", "reference.safetensors")):
        done = ask("encode", file, "-o", tmp_path / name, "--role", role)
        assert done.returncode == 0, done.stderr
        assert f"{name}: 20 frames of 16 values, as {role}\n".encode() in done.stdout
    assert np.load(tmp_path / "prompt.npy").shape == load_file(tmp_path / "reference.safetensors")["reference"].shape
    latents = ("--prompt-latents", tmp_path / "prompt.npy", "--reference-latents", tmp_path / "reference.safetensors")
    added = ask("voices", "add", "clara", *latents, "--prompt-text", "a tone")
    assert added.stdout.startswith(b"clara: both, 1.60 s, "), added.stderr
    assert ask("voices", "add", "clara", "--reference-audio", file).returncode == os.EX_DATAERR
    assert added.stdout in ask("voices", "list").stdout
    speech = tmp_path / "speech.pcm"
    said = ask("say", "Hello.", "--voice", "clara", "-o", speech, "--seed", "4", "--max-length", "3")
    assert said.returncode == 0, said.stderr
    files = {"prompt_audio": file, "prompt_text": "a tone", "reference_audio": file}
    expected = synthesize("Hello.", url=triton_server.grpc_url, seed=4, max_length=3, **files)
    assert speech.read_bytes() == expected.audio
    assert ask("voices", "remove", "clara").stdout == b"clara: removed\n"
    gone = ask("say", "Hello.", "--voice", "clara", "-o", speech)
    assert gone.returncode == os.EX_DATAERR
    assert b"[UNKNOWN_VOICE]" in gone.stderr


def test_an_adapter_from_a_folder_to_a_sentence(ask: Cli, triton_server: TritonServer, tmp_path: Path) -> None:
    make_lora(triton_server.log_file.parent / "loras" / "cli", load_config(NOISE_FOLDER), alpha=2)
    added = ask("loras", "register", "low", "--path", "cli")
    assert added.stdout.startswith(b"low: rank 4, cli, "), added.stderr
    assert added.stdout in ask("loras", "list").stdout
    speech = tmp_path / "speech.pcm"
    said = ask("say", "Hello.", "--lora", "low", "-o", speech, "--seed", "4", "--max-length", "3")
    assert said.returncode == 0, said.stderr
    with_it, without = (
        synthesize("Hello.", url=triton_server.grpc_url, seed=4, max_length=3, lora=name) for name in ("low", None)
    )
    assert speech.read_bytes() == with_it.audio != without.audio
    assert ask("loras", "unregister", "low").stdout == b"low: unregistered\n"
    gone = ask("say", "Hello.", "--lora", "low", "-o", speech)
    assert gone.returncode == os.EX_DATAERR
    assert b"[UNKNOWN_LORA]" in gone.stderr


def test_the_documented_way_from_a_file_to_latents_to_speech(
    ask: Cli, triton_server: TritonServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").split("## Encoding audio files\n")[1]
    commands = section.split("```bash\n")[1].split("```")[0].splitlines()
    monkeypatch.chdir(tmp_path)
    Path("hello.wav").write_bytes(clip())
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "voxcpm-triton"
        options = ("--seed", "4", "--max-length", "3") if arguments[0] == "say" else ()
        done = ask(*arguments, *options)
        assert done.returncode == 0, done.stderr
    same = {"url": triton_server.grpc_url, "format": "wav", "seed": 4, "max_length": 3}
    prompt = {"prompt_audio": "hello.wav", "prompt_text": "Hello from Triton."}
    assert Path("more.wav").read_bytes() == synthesize("And on it goes.", **prompt, **same).audio
    assert Path("voice.wav").read_bytes() == synthesize("In another voice.", reference_audio="hello.wav", **same).audio


def test_status_and_cancel(ask: Cli) -> None:
    assert ask("status").stdout.startswith(b"voxcpm_0_0: ready, running 0 of 64, waiting 0 of 8, pages 0 of ")
    assert json.loads(ask("status", "--json").stdout)["instances"][0]["instance"] == "voxcpm_0_0"
    assert ask("cancel", "nobody").stdout == b"cancelled: 0\n"


def test_what_fails_is_one_line(ask: Cli, tmp_path: Path) -> None:
    (tmp_path / "odd.wav").write_bytes(b"no audio")
    (tmp_path / "odd.safetensors").write_bytes(b"no tensors")
    np.save(tmp_path / "odd.npy", np.zeros((4, 3), np.float32))
    out = tmp_path / "latents.npy"
    for arguments, status, words in (
        (("encode", tmp_path / "odd.wav", "-o", out), os.EX_DATAERR, b"[INVALID_AUDIO]"),
        (("encode", tmp_path / "none.wav", "-o", out), 1, b"none.wav: No such file"),
        (("encode", tmp_path / "odd.wav", "-o", tmp_path / "latents.bin"), 1, b"end with .safetensors or .npy"),
        (("voices", "add", "--reference-latents", tmp_path / "odd.safetensors"), 1, b"not a safetensors file"),
        (("say", "Hello.", "-o", "-", "--prompt-latents", tmp_path / "odd.safetensors"), 1, b"not a safetensors file"),
        (("voices", "add", "--reference-latents", tmp_path / "odd.npy"), os.EX_DATAERR, b"[INVALID_LATENTS]"),
        (("voices", "add"), os.EX_DATAERR, b"[CONFLICTING_INPUTS]"),
        (("voices", "remove", "nobody"), os.EX_DATAERR, b"[UNKNOWN_VOICE]"),
    ):
        done = ask(*arguments)
        assert done.returncode == status, done.stderr
        (line,) = done.stderr.splitlines()
        assert words in line
    assert not out.exists()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
