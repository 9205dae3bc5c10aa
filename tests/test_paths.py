"""File names that are not ASCII, also where Python takes the file system for ASCII as in Triton's stub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lora.adapters import add_adapter
from tests.noise_voice import NOISE_FOLDER
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.errors import ConfigError
from voxcpm_core.paths import as_path, as_text, printable

NAME = "Stimmen-ä-声-😀"
ASCII_PYTHON = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
LOADS = """
import json, os, sys
from pathlib import Path
from voxcpm_core.chain.decoding import LoadedDecoder
from voxcpm_core.checkpoint.locate import locate
from voxcpm_core.checkpoint.opened import open_checkpoint
from voxcpm_core.config import EngineConfig
from voxcpm_core.lora.folder import LoraFolder
from voxcpm_core.lora.store import LoraRecord, LoraStore
assert sys.getfilesystemencoding() == "ascii"
parameters = json.loads(sys.stdin.read())
config = EngineConfig.from_settings(parameters, os.environ)
checkpoint = open_checkpoint(config.model)
LoadedDecoder(checkpoint.folder, checkpoint.model, "cpu")
folder = LoraFolder(config.lora_root, config.allowed_parameters)
store = LoraStore(config.lora_root)
store.add(LoraRecord(config.allowed_parameters, folder.path, folder.path, 4, "now", *folder.digests()))
try:
    locate(config.model + "/" + config.allowed_parameters)
except ValueError as error:
    message = str(error)
print(json.dumps([config.allowed_parameters, store.records()[0].path, message]))
"""


def _in_ascii(script: str, parameters: dict[str, str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(parameters), env={**os.environ, **ASCII_PYTHON, **environ},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("in_environment", [True, False])
def test_a_stub_finds_what_is_named_in_another_alphabet(tmp_path: Path, in_environment: bool):
    checkpoint = tmp_path / NAME
    checkpoint.symlink_to(NOISE_FOLDER, target_is_directory=True)
    add_adapter(tmp_path / "adapters-é", load_config(NOISE_FOLDER), NAME)
    settings = {"model": str(checkpoint), "lora_root": str(tmp_path / "adapters-é"), "allowed_parameters": NAME}
    environ = {f"VOXCPM_{name.upper()}": value for name, value in settings.items()} if in_environment else {}
    ended = _in_ascii(LOADS, {} if in_environment else settings, **environ)
    assert ended.returncode == 0, ended.stderr
    name, path, message = json.loads(ended.stdout)
    assert (name, path) == (NAME, NAME)
    message.encode()


def test_a_name_that_is_not_unicode_is_found_and_can_be_told(tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe4"))
    folder.mkdir()
    assert as_path(as_text(folder)) == folder
    assert str(ConfigError(f"{folder} \ud800 ä")) == f"{tmp_path}/\ufffd \ufffd ä"


def test_whole_characters_are_told_as_they_are():
    as_ascii_python_has_it = NAME.encode().decode("ascii", "surrogateescape")
    assert printable(f"{NAME} {as_ascii_python_has_it}") == f"{NAME} {NAME}"
