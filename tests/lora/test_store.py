"""Registered adapters: names in a folder that any number of stores share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voxcpm_core.errors import RequestError
from voxcpm_core.lora.facts import LoraFacts
from voxcpm_core.lora.store import LoraRecord, LoraStore

NAMES = ["anna", "../../x", "a/b", ".", "x" * 64, "声音🎤", "con"]


def record(name: str, digest: str = "d") -> LoraRecord:
    return LoraRecord.make(name, "folder/of/it", "folder/of/it", LoraFacts(digest, "w" * 64, 8, 16.0, 30))


def code(action, *arguments) -> str:
    with pytest.raises(RequestError) as caught:
        action(*arguments)
    assert "/" not in str(caught.value).replace("a/b", "").replace("../../x", "")
    return caught.value.code.value


def test_what_one_store_changes_another_sees(tmp_path: Path):
    one, other = LoraStore(str(tmp_path)), LoraStore(str(tmp_path))
    assert other.records() == []
    for name in NAMES:
        one.add(record(name, digest=name))
    assert [each.name for each in other.records()] == sorted(NAMES)
    for name in NAMES:
        assert other.get(name).ref.digest == name
        assert code(other.add, record(name, digest="other")) == "ALREADY_EXISTS"
        other.remove(name)
        assert not one.has(name)
        assert code(one.get, name) == code(one.remove, name) == "UNKNOWN_LORA"
    assert list(tmp_path.rglob("*")) == [tmp_path / ".registered"], "nothing is left, and nothing lies elsewhere"


def test_what_a_killed_server_left_is_swept_once_it_is_old(tmp_path: Path):
    store = LoraStore(str(tmp_path))
    store.add(record("first"))
    old, young = tmp_path / ".registered" / ".tmp-old", tmp_path / ".registered" / ".tmp-young"
    for left in (old, young):
        left.write_text("{")
    os.utime(old, (0, 0))
    store.add(record("second"))
    assert (old.exists(), young.exists()) == (False, True)
    assert [each.name for each in store.records()] == ["first", "second"]


def test_a_listing_tells_no_hash():
    assert set(record("a").listed()) == {"name", "rank", "source", "created"}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"name": 5}', b"\xff"])
def test_a_damaged_record_is_left_out_and_said_to_be(tmp_path: Path, data):
    store = LoraStore(str(tmp_path))
    store.add(record("a"))
    next((tmp_path / ".registered").glob("*.json")).write_bytes(data)
    assert store.records() == []
    assert code(store.get, "a") == "INTERNAL"


def test_what_the_file_system_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = LoraStore(str(tmp_path))

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    assert code(store.add, record("a")) == "INTERNAL"
    assert list((tmp_path / ".registered").iterdir()) == []


def test_a_store_without_a_folder_has_and_takes_none():
    store = LoraStore("")
    assert (store.records(), store.has("a")) == ([], False)
    assert code(store.get, "a") == code(store.remove, "a") == "UNKNOWN_LORA"
    assert code(store.add, record("a")) == "INVALID_PARAMETER"
