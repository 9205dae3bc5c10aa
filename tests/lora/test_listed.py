"""Adapters that are listed to be there from the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoint.lora_folder import make_lora
from tests.lora.test_registration import V2, Engine
from voxcpm_core.config import EngineConfig
from voxcpm_core.config.loras import ListedLora, listed_loras
from voxcpm_core.errors import ConfigError, RequestError
from voxcpm_core.lora import listed as listed_module
from voxcpm_core.lora.folder import LoraFolder
from voxcpm_core.lora.listed import register_listed
from voxcpm_core.lora.registration import new_record
from voxcpm_core.lora.store import LoraStore

SUM = "Ab" * 32


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """With two adapters."""
    for seed, path in enumerate(("team/anna", "other")):
        make_lora(tmp_path / path, V2, seed=seed)
    return tmp_path


def start(root: Path, loras: str) -> dict[str, str]:
    """Where the names come from after a start."""
    register_listed(Engine(root, loras=loras))
    return {record.name: record.source for record in LoraStore(str(root)).records()}


def test_what_the_setting_says():
    assert listed_loras("") == listed_loras(" , ") == ()
    assert listed_loras(f"anna=team/anna , the giant=demo://giant,x=hf://a/b@v1,y=hf://a/b@v1@{SUM},z=p@{SUM}") == (
        ListedLora("anna", "team/anna", None, None),
        ListedLora("the giant", None, "demo://giant", None),
        ListedLora("x", None, "hf://a/b@v1", None),
        ListedLora("y", None, "hf://a/b@v1", SUM),
        ListedLora("z", "p", None, SUM),
    )


@pytest.mark.parametrize("text", ["anna", "=anna", "anna=", "anna=x, other"])
def test_an_entry_that_says_nothing_is_shown(text: str):
    with pytest.raises(ConfigError, match="^loras: expected NAME=FOLDER or NAME=hf://OWNER/NAME, .*; got '(.*)'$"):
        listed_loras(text)


@pytest.mark.parametrize(
    "source",
    [f"p@{SUM[1:]}", f"p@{SUM}0", f"p@x{SUM[1:]}", "p@", f"p@sha256:{SUM}", f"p@{SUM}@", f"hf://a/b@{SUM[1:]}",
     f"hf://a/b@sha256:{SUM}", "hf://a/b@v1@v2", f"hf://a/b@v1@{SUM[1:]}"],
)  # fmt: skip
def test_a_sum_that_is_none_is_named_and_no_part_of_the_path(source: str):
    with pytest.raises(ConfigError, match="^loras: expected 64 hexadecimal digits behind the last @, got '"):
        listed_loras(f"anna=team/anna, bad={source}")


def test_what_may_stand_behind_an_at():
    commit = "0f" * 20
    listed = listed_loras(f"x=hf://a/b@{commit},y=p@2@{SUM}")
    assert listed == (ListedLora("x", None, f"hf://a/b@{commit}", None), ListedLora("y", "p@2", None, SUM))


def test_a_name_listed_twice_and_a_list_where_none_are_served():
    with pytest.raises(ConfigError, match="^loras: the name 'anna' is listed twice$"):
        listed_loras("anna=x,anna=x")
    for settings in ({}, {"lora_root": "x", "max_loras": 0}):
        with pytest.raises(ConfigError, match="^loras: adapters are listed, but lora_root is not set"):
            EngineConfig(loras="anna=x", **settings)


@pytest.mark.timeout(30)
def test_a_list_of_very_many():
    """Read in each process: it must not take a time that grows with its square."""
    assert len(listed_loras(",".join(f"name-{number}=folder" for number in range(200_000)))) == 200_000


def test_they_are_there_after_the_first_start_and_the_next(root: Path):
    sums = LoraFolder(str(root), "other").digests()
    loras = f"anna=team/anna, other=other@{sums[1].upper()}, giant=demo://giant"
    expected = {"anna": "team/anna", "other": "other", "giant": "demo://giant"}
    assert start(root, loras) == expected
    created = [record.created for record in LoraStore(str(root)).records()]
    assert start(root, loras) == expected
    assert [record.created for record in LoraStore(str(root)).records()] == created
    assert start(root, "") == expected, "a name that is listed no more stays"


@pytest.mark.parametrize(
    ("loras", "message"),
    [
        ("bad=missing", "there is no folder 'missing' in lora_root"),
        ("bad=../elsewhere", "there is no folder '../elsewhere' in lora_root"),
        (f"bad=other@{SUM}", "sha256: the weights have [0-9a-f]{64}"),
        ("bad=demo://dwarf", "the package has demo://giant, not 'demo://dwarf'"),
        ("bad=ftp://x", "expected hf://owner/name"),
    ],
)
def test_one_that_cannot_be_had_ends_the_start_by_name(root: Path, loras: str, message: str):
    with pytest.raises(ConfigError, match=f"^loras: the adapter 'bad' cannot be registered: .*{message}"):
        start(root, f"anna=team/anna,{loras},other=other")


def test_a_name_that_has_other_files(root: Path):
    start(root, "anna=team/anna")
    with pytest.raises(ConfigError, match="the adapter 'anna' .*: the name is registered with other files; list ano"):
        start(root, "anna=other")
    with pytest.raises(ConfigError, match="the adapter 'anna' .*: sha256: the weights have"):
        start(root, f"anna=team/anna@{SUM}")
    make_lora(root / "team" / "anna", V2, seed=9)
    with pytest.raises(ConfigError, match="registered with other files"):
        start(root, "anna=team/anna")


def test_of_replicas_that_start_at_once_one_is_the_first(root: Path, monkeypatch: pytest.MonkeyPatch):
    def slower(store: LoraStore, *arguments):
        record = new_record(store, *arguments)
        monkeypatch.setattr(listed_module, "new_record", new_record)
        start(root, "anna=team/anna")
        return record

    monkeypatch.setattr(listed_module, "new_record", slower)
    assert start(root, "anna=team/anna") == {"anna": "team/anna"}


def test_a_server_starts_without_the_hub_when_it_has_the_files(root: Path, monkeypatch: pytest.MonkeyPatch):
    engine = Engine(root)
    record = new_record(LoraStore(str(root)), engine, "anna", "team/anna", None, None)
    LoraStore(str(root)).add(type(record)(**{**vars(record), "source": "hf://team/anna"}))

    def offline(*_: object) -> str:
        raise RequestError(listed_module.ErrorCode.INVALID_PARAMETER, "uri: Hugging Face gave nothing")

    for module in ("listed", "registration"):
        monkeypatch.setattr(f"voxcpm_core.lora.{module}.fetch", offline)
    assert start(root, "anna=hf://team/anna") == {"anna": "hf://team/anna"}
    with pytest.raises(ConfigError, match="Hugging Face gave nothing"):
        start(root, "anna=hf://team/other")
