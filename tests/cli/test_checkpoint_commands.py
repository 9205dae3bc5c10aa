"""`make-checkpoint` and `convert`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from voxcpm_core.config import ModelConfig

Cli = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.mark.parametrize(("generation", "architecture"), [("0.5", "voxcpm"), ("2", "voxcpm2")])
def test_make_checkpoint(cli_here: Cli, tmp_path: Path, generation: str, architecture: str) -> None:
    folder = tmp_path / "tiny"
    done = cli_here("make-checkpoint", folder, "--size", "tiny", "--generation", generation, "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert b"random weights" in done.stdout
    assert json.loads((folder / "config.json").read_text())["architecture"] == architecture


def test_make_checkpoint_says_how_long_a_patch_is(cli_here: Cli, tmp_path: Path) -> None:
    done = cli_here("make-checkpoint", tmp_path / "tiny", "--generation", "2")
    config = ModelConfig.from_json(json.loads((tmp_path / "tiny/config.json").read_text()))
    patch_ms = 1000 * config.samples_per_patch / config.vae.sample_rate
    assert f"One patch is {patch_ms:g} ms of audio." in done.stdout.decode()


def test_make_checkpoint_leaves_a_checkpoint_alone(cli_here: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("precious")
    done = cli_here("make-checkpoint", tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert f"{tmp_path} holds a checkpoint already" in line
    assert [file.name for file in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "precious"


def test_convert(cli: Cli, cli_here: Cli, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    assert cli_here("make-checkpoint", source, "--generation", "0.5").returncode == 0
    assert (source / "audiovae.pth").exists()
    done = cli("convert", source, "--out", target)
    assert done.returncode == 0, done.stderr
    assert (target / "audiovae.safetensors").exists()


def test_convert_of_nothing_is_one_line(cli_here: Cli, tmp_path: Path) -> None:
    done = cli_here("convert", tmp_path / "nowhere")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert b"nowhere" in done.stderr
