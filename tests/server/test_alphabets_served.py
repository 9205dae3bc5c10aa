"""Folders and names in other alphabets on a real server, whose stub takes the file system for ASCII."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoint.lora_folder import make_lora
from tests.noise_voice import NOISE_FOLDER
from tests.server_process import ADMIN_TOKEN
from voxcpm_client import Client
from voxcpm_client.server import ServerError, TritonServer, find_repository
from voxcpm_core.checkpoint.load import load_config

pytestmark = pytest.mark.server

NAME = "Stimmen-ä-声-😀"
SAID = {"seed": 5, "max_length": 3, "inference_timesteps": 2}


def test_checkpoint_voices_and_adapters(start_server: Callable[..., TritonServer], tmp_path: Path):
    root = tmp_path / NAME
    shutil.copytree(NOISE_FOLDER, root / "model")
    make_lora(root / "loras" / NAME, load_config(NOISE_FOLDER))
    server = start_server(
        repository=find_repository(), VOXCPM_MODEL=str(root / "model"), VOXCPM_VOICES=str(root / "voices"),
        VOXCPM_LORA_ROOT=str(root / "loras"), VOXCPM_LORAS=f"{NAME}={NAME}", VOXCPM_ADMIN_TOKEN=ADMIN_TOKEN,
    )  # fmt: skip
    with Client(url=server.grpc_url, token=ADMIN_TOKEN, timeout_s=60) as client:
        spoken = client.synthesize("Hello.", lora=NAME, format="wav", **SAID).audio
        client.register_lora("again", NAME)
        assert [(each.name, each.source) for each in client.loras()] == [(NAME, NAME), ("again", NAME)]
        assert client.add_voice(NAME, reference_audio=spoken).name == NAME
        assert client.synthesize("Hello.", voice=NAME, **SAID).audio
    with Client(url=server.grpc_url, model="voxcpm_mp3", timeout_s=60) as client:
        assert client.synthesize("Hello.", **SAID).audio


def test_a_checkpoint_that_is_not_there_is_named(start_server: Callable[..., TritonServer], tmp_path: Path):
    (tmp_path / "ä").mkdir()
    with pytest.raises(ServerError, match=f"{tmp_path}/ä/config.json: cannot be read"):
        start_server(VOXCPM_MODEL=str(tmp_path / "ä"))
