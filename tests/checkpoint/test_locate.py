"""Finding checkpoints: the demo, folders, and the local cache of the hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.locate import locate
from voxcpm_core.checkpoint.read import read_tensors, read_vae_tensors
from voxcpm_core.errors import ConfigError
from voxcpm_core.text.tokenizer import TextTokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROOT = Path(__file__).resolve().parents[2]
PRINT_LOCATED = """
import sys
from voxcpm_core.checkpoint.locate import locate
from voxcpm_core.errors import ConfigError
try:
    print(locate(sys.argv[1]))
except ConfigError as error:
    print("ConfigError:", error)
"""


def test_the_demo_ships_with_the_package():
    folder = locate("demo")
    config = load_config(folder)
    assert (config.architecture, config.vae.sample_rate) == ("voxcpm2", 16000)
    assert read_tensors(folder)
    assert read_vae_tensors(folder)
    assert TextTokenizer.from_folder(folder).encode("Hello")
    assert "Licence" in (folder / "README.md").read_text()
    assert sum(path.stat().st_size for path in folder.iterdir()) < 24_000_000


def test_an_existing_folder(tmp_path):
    assert locate(str(tmp_path)) == tmp_path


def test_what_is_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    for model, message in [
        ("", "not set"),
        (str(tmp_path / "file"), "a file, not a folder"),
        (str(tmp_path / "none"), "no such folder"),
        ("VoxCPM2", "no such folder"),
        ("a/b/c", "no such folder"),
        ("../x", "no such folder"),
        ("a/b@../x", "no such folder"),
        ("a/b@", "no such folder"),
        ("x" * 300, "cannot be looked at: File name too long"),
        ("~nobody-of-that-name/x", "cannot be looked at: Could not determine home directory"),
    ]:
        with pytest.raises(ConfigError, match=message) as caught:
            locate(model)
        assert "openbmb/VoxCPM2" in str(caught.value)


def _located_offline(model: str, home: Path) -> str:
    """In a process of its own: the hub library reads its environment when it is imported."""
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        environ.pop(name, None)
    command = [sys.executable, "-c", PRINT_LOCATED, model]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def test_a_hub_id_is_found_in_the_local_cache(tmp_path):
    repository = tmp_path / "hub" / "models--someone--VoxCPM-voice"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for branch in ("main", "refs/pr/1"):
        (repository / "refs" / branch).parent.mkdir(parents=True, exist_ok=True)
        (repository / "refs" / branch).write_text(COMMIT)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "abc").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    for revision in ("", "@main", "@refs/pr/1", f"@{COMMIT}"):
        assert _located_offline(f"someone/VoxCPM-voice{revision}", tmp_path) == str(snapshot)
    message = _located_offline("someone/VoxCPM-voice@v2", tmp_path)
    assert "`hf download someone/VoxCPM-voice --revision v2` fills the cache" in message


def test_a_hub_id_that_is_not_cached_says_how_to_get_it(tmp_path):
    message = _located_offline("someone/VoxCPM-voice", tmp_path)
    assert message.startswith("ConfigError: model 'someone/VoxCPM-voice': there is no such folder")
    assert "hf download someone/VoxCPM-voice" in message
