"""Registering: what has to be right before an engine is asked, and adapters from the hub and from the package."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from tests.checkpoint.lora_folder import make_lora
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.locate import DEMO_FOLDER
from voxcpm_core.checkpoint.lora import read_lora
from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.errors import RequestError
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.lora.folder import LoraFolder
from voxcpm_core.lora.packaged import EXAMPLES
from voxcpm_core.lora.registration import new_record
from voxcpm_core.lora.store import LoraStore

V2 = ModelConfig.from_json(tiny_config("2"))


class Engine:
    """Accepts every adapter that it is asked about."""

    def __init__(self, root: Path, **settings) -> None:
        self.config = EngineConfig(lora_root=str(root), **settings)
        self.asked: list[str] = []

    def check_lora(self, path: str) -> Future[LoraFacts]:
        self.asked.append(path)
        future: Future[LoraFacts] = Future()
        future.set_result(LoraFacts(*LoraFolder(self.config.lora_root, path).digests(), 4, 8.0, 32))
        return future


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    make_lora(tmp_path / "team" / "anna", V2)
    return Engine(tmp_path)


def register(engine: Engine, name: object = "anna", path: str | None = None, uri=None, sha256=None):
    return new_record(LoraStore(engine.config.lora_root), engine, name, path, uri, sha256)


def test_a_path_below_the_root_with_the_right_sum(engine, tmp_path):
    weights = (tmp_path / "team/anna/lora_weights.safetensors").read_bytes()
    sha256 = hashlib.sha256(weights).hexdigest()
    for path in ("team/anna", "team//./anna/", str(tmp_path / "team/anna")):
        record = register(engine, path=path, sha256=sha256.upper())
        assert (record.path, record.source, record.weights_sha256) == ("team/anna", "team/anna", sha256)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ({"path": "team/anna", "sha256": "0" * 64}, "INVALID_PARAMETER", "sha256: the weights have [0-9a-f]{64}"),
        ({"path": "team/anna", "sha256": "0" * 63}, "INVALID_PARAMETER", "expected 64 hexadecimal digits"),
        ({}, "CONFLICTING_INPUTS", "either a path or a uri"),
        ({"path": "team/anna", "uri": "hf://a/b"}, "CONFLICTING_INPUTS", "either a path or a uri"),
        ({"path": "team", "sha256": "0" * 64}, "INVALID_PARAMETER", "lora_weights.safetensors of 'team'"),
        ({"path": "../x"}, "INVALID_PARAMETER", "no folder '../x' in lora_root"),
        ({"path": "team/anna", "name": "x" * 300}, "INVALID_PARAMETER", "name: expected 1 to 64 characters"),
        ({"path": "team/anna", "name": "a\nb"}, "INVALID_PARAMETER", "no control characters"),
        *(
            ({"uri": f"demo://{name}"}, "INVALID_PARAMETER", "uri: the package has demo://giant, not")
            for name in ("", "dwarf", "../adapters/giant", "giant/.", "/etc")
        ),
        *(({"uri": uri}, "INVALID_PARAMETER", "uri: expected hf://") for uri in ("a/b", "hf://a", "hf://a/../b", "")),
    ],
)
def test_what_is_refused_before_weights_are_read(engine, arguments, code, message):
    with pytest.raises(RequestError, match=message) as caught:
        register(engine, **arguments)
    assert caught.value.code.value == code
    assert engine.asked == []


def test_a_name_that_is_taken_and_a_server_without_adapters(engine, tmp_path):
    LoraStore(str(tmp_path)).add(register(engine, path="team/anna"))
    with pytest.raises(RequestError, match="the adapter 'anna' exists; unregister it first"):
        register(engine, path="team/anna")
    with pytest.raises(RequestError, match="VOXCPM_MAX_LORAS is 0"):
        register(Engine(tmp_path, max_loras=0), "other", path="team/anna")


def test_the_hub_fills_a_folder_for_each_commit(engine, tmp_path, monkeypatch):
    calls = []

    def download(repo, revision, allow_patterns, local_dir):
        calls.append((repo, revision, sorted(allow_patterns)))
        make_lora(local_dir, V2)

    info = SimpleNamespace(model_info=lambda repo, revision: SimpleNamespace(sha=f"commit-of-{revision}"))
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    record = register(engine, uri="hf://some.one/voice@v1")
    assert (record.path, record.source) == (".hub/some.one--voice--commit-of-v1", "hf://some.one/voice@v1")
    files = ["lora_config.json", "lora_weights.ckpt", "lora_weights.safetensors"]
    assert calls == [("some.one/voice", "commit-of-v1", files)]

    def offline(*arguments, **options):
        raise ConnectionError(f"cannot reach the hub from {tmp_path}")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(RequestError, match=r"^uri: Hugging Face gave no 'hf://a/b' \(ConnectionError\)$"):
        register(engine, uri="hf://a/b")


def test_the_packaged_adapter_is_copied_whole_and_once(engine, tmp_path):
    killed = tmp_path / ".packaged" / ".tmp-left-long-ago"
    killed.mkdir(parents=True)
    os.utime(killed, (0, 0))
    record = register(engine, uri="demo://giant")
    assert (record.source, Path(record.path).parent) == ("demo://giant", Path(".packaged"))
    copy = tmp_path / record.path
    assert {each.name: each.read_bytes() for each in copy.iterdir()} == {
        each.name: each.read_bytes() for each in (EXAMPLES / "giant").iterdir()
    }
    first = copy.stat().st_ino
    assert register(engine, "again", uri="demo://giant").path == record.path
    assert copy.stat().st_ino == first
    assert [each.name for each in copy.parent.iterdir()] == [copy.name]  # nothing half-written is left


def test_a_root_that_cannot_be_written_to_takes_no_packaged_adapter(engine, tmp_path):
    (tmp_path / ".packaged").write_text("in the way")
    with pytest.raises(RequestError, match="^uri: 'demo://giant' cannot be copied into lora_root: ") as caught:
        register(engine, uri="demo://giant")
    assert str(tmp_path) not in str(caught.value)


def test_the_packaged_adapter_fits_the_demo_and_is_small():
    config = load_config(DEMO_FOLDER)
    adapter = read_lora(EXAMPLES / "giant", config)
    assert adapter.rank == 8
    assert sum(each.stat().st_size for each in (EXAMPLES / "giant").iterdir()) < 1_000_000
