"""The folder of voices: what is kept comes back, whoever asks; what is not whole is not there."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.mounts import run_with_tmpfs
from tests.voices.conftest import MODEL, latents, open_store, voice
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.shared_folder import file_name
from voxcpm_core.voices import Voice, VoiceStore, files
from voxcpm_core.voices.store import NUM_CACHED
from voxcpm_core.voices.voice import VoiceRecord, checked_name, drawn_name

ROOT = Path(__file__).parents[2]
ODD_NAMES = [
    "../escape", "/etc/passwd", ".", "..", ".hidden", "a/b\\c", "日本語", "👩‍👩‍👧 family", "x" * 64, " padded ",
]


def code_of(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RequestError) as caught:
        work()
    assert "voices/" not in str(caught.value), "no path in a message"
    return caught.value.code


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", ["prompt", "reference", "both"])
def test_a_voice_comes_back_as_it_was(store: VoiceStore, folder: Path, kind: str):
    given = voice("anna", kind=kind)
    store.add(given)
    for reader in (store, open_store(folder)):
        got = reader.get("anna")
        assert got.record == given.record
        for role in ("prompt", "reference"):
            expected, array = getattr(given, role), getattr(got, role)
            assert (array is None) == (expected is None)
            if array is not None:
                np.testing.assert_array_equal(array, expected)
                assert not array.flags.writeable
    record = given.record
    assert (record.kind, record.prompt_text != "") == (kind, kind != "reference")
    frames = {"prompt": 2, "reference": 3, "both": 5}[kind] * MODEL.patch_size
    assert record.seconds == round(frames * MODEL.vae.hop_length / MODEL.vae.encoder_sample_rate, 3)
    assert record.created.endswith("+00:00")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_no_name_leaves_the_folder(store: VoiceStore, folder: Path, name: str):
    store.add(voice(checked_name(name)))
    assert store.get(name).record.name == name
    outside = {path for path in entries(folder.parents[1]) if folder not in path.parents}
    assert outside == set()
    (kept,) = folder.iterdir()
    assert len(kept.name) == 64
    assert kept.name.isalnum()
    store.remove(name)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", " \t", "x" * 65, "x" * 300, "a\nb", "a\x00b", "\x1b[2J", "\ud800", "a\u2028b", 5, b"x"]
)
def test_names_that_are_refused(name: object):
    assert code_of(lambda: checked_name(name)) is ErrorCode.INVALID_PARAMETER


def test_asking_for_any_text_is_safe(store: VoiceStore):
    for name in ("", "x" * 300, "\ud800", "a\x00b", "../../x"):
        assert code_of(lambda name=name: store.get(name)) is ErrorCode.UNKNOWN_VOICE
        assert code_of(lambda name=name: store.remove(name)) is ErrorCode.UNKNOWN_VOICE
        assert not store.has(name)
    with pytest.raises(RequestError) as caught:
        store.get("y" * 300)
    assert str(caught.value) == f"there is no voice '{'y' * 38}…"


def test_drawn_names_differ():
    assert len({checked_name(drawn_name()) for _ in range(100)}) == 100


def test_a_name_is_taken_once(store: VoiceStore, folder: Path):
    store.add(voice("anna", seed=1))
    assert code_of(lambda: open_store(folder).add(voice("anna", seed=2))) is ErrorCode.ALREADY_EXISTS
    np.testing.assert_array_equal(store.get("anna").prompt, latents(1))
    assert len(list(folder.iterdir())) == 1, "nothing is left of the refused one"


def test_of_many_who_write_one_name_at_once_one_is_taken(folder: Path):
    codes: list[str] = []

    def add(seed: int) -> None:
        try:
            open_store(folder).add(voice("anna", seed=seed))
            codes.append("added")
        except RequestError as error:
            codes.append(error.code.value)

    threads = [threading.Thread(target=add, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == ["ALREADY_EXISTS"] * 7 + ["added"]
    assert len(entries(folder)) == 2
    assert open_store(folder).get("anna").record.kind == "both"


def test_what_one_store_changes_the_other_sees_at_once(store: VoiceStore, folder: Path):
    other = open_store(folder)
    store.add(voice("anna", seed=1))
    held = other.get("anna")
    store.remove("anna")
    assert code_of(lambda: other.get("anna")) is ErrorCode.UNKNOWN_VOICE
    store.add(voice("anna", seed=2))
    np.testing.assert_array_equal(other.get("anna").prompt, latents(2))
    np.testing.assert_array_equal(held.prompt, latents(1), "who holds a voice keeps it")


def test_a_second_use_reads_no_latents(store: VoiceStore, monkeypatch: pytest.MonkeyPatch):
    store.add(voice("anna"))
    first = store.get("anna")
    monkeypatch.setattr(files.VoiceFolder, "voice", lambda self, record: pytest.fail("read again"))
    assert store.get("anna") is first


def test_the_cache_is_bounded(store: VoiceStore):
    for index in range(NUM_CACHED + 10):
        store.add(voice(f"v{index}", seed=index, kind="reference"))
        store.get(f"v{index}")
    assert len(store._cache) == NUM_CACHED
    np.testing.assert_array_equal(store.get("v0").reference, latents(1000, 3))


def test_records_are_listed_by_name_without_transcripts(store: VoiceStore):
    assert store.records() == []
    for name, kind in (("b", "prompt"), ("a", "both")):
        store.add(voice(name, kind=kind))
    assert [record.name for record in store.records()] == ["a", "b"]
    listed = store.records()[1].listed()
    assert set(listed) == {"name", "kind", "seconds", "created", "made_for"}
    assert "begins" not in json.dumps(listed)


def test_limits_on_number_and_size(folder: Path):
    small = open_store(folder, max_voices=2)
    small.add(voice("a"))
    small.add(voice("b"))
    with pytest.raises(RequestError, match=r"max_voices, 2\): remove one") as caught:
        small.add(voice("c"))
    assert caught.value.code is ErrorCode.TOO_LARGE
    small.remove("a")
    small.add(voice("c"))
    frames = (1 << 20) // (4 * MODEL.feat_dim)
    large = Voice.make("d", MODEL, None, "", np.zeros((frames, MODEL.feat_dim), np.float32))
    assert code_of(lambda: open_store(folder, max_mib=1).add(large)) is ErrorCode.TOO_LARGE
    assert sorted(record.name for record in small.records()) == ["b", "c"]


def test_without_a_folder():
    store = VoiceStore("", 10, 10)
    with pytest.raises(RequestError, match="VOXCPM_VOICES is not set") as caught:
        store.add(voice("anna"))
    assert caught.value.code is ErrorCode.INVALID_PARAMETER
    assert code_of(lambda: store.get("anna")) is ErrorCode.UNKNOWN_VOICE
    assert code_of(lambda: store.remove("anna")) is ErrorCode.UNKNOWN_VOICE
    assert store.records() == []


@pytest.mark.parametrize("function", ["fsync", "mkdir", "rename"])
def test_a_full_disk_leaves_nothing(store: VoiceStore, folder: Path, monkeypatch: pytest.MonkeyPatch, function: str):
    store.add(voice("first"))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, function, full)
        with pytest.raises(RequestError, match="No space left on device") as caught:
            store.add(voice("anna"))
    assert caught.value.code is ErrorCode.INTERNAL
    assert [record.name for record in store.records()] == ["first"]
    assert len(list(folder.iterdir())) == 1
    store.add(voice("anna"))


FULL_DISK = """
import subprocess, sys
from pathlib import Path
import numpy as np
from tests.voices.conftest import MODEL, open_store, voice
from voxcpm_core.errors import RequestError
from voxcpm_core.voices import Voice
folder = Path(sys.argv[1]) / "voices"
store = open_store(folder)
store.add(voice("first"))
large = Voice.make("large", MODEL, None, "", np.zeros((100_000, MODEL.feat_dim), np.float32))
for _ in range(2):
    try:
        store.add(large)
    except RequestError as error:
        print(error.code.value, error)
print(len(list(folder.iterdir())), [record.name for record in store.records()], store.get("first").record.kind)
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
for change in (lambda: store.add(voice("second")), lambda: store.remove("first")):
    try:
        change()
    except RequestError as error:
        print(error.code.value, error)
print(open_store(folder).get("first").record.kind)
"""


def test_a_disk_that_is_really_full_and_one_that_is_read_only(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    done = run_with_tmpfs(disk, "256k", FULL_DISK, str(disk))
    assert done.returncode == 0, done.stderr
    refused = "INTERNAL the file system refused the voice 'large': No space left on device"
    read_only = [refused.replace("large", name).replace("No space left on device", "Read-only file system")
                 for name in ("second", "first")]
    assert done.stdout.splitlines() == [refused, refused, "1 ['first'] both", *read_only, "both"]


def test_what_a_killed_server_left_is_swept_once_it_is_old(store: VoiceStore, folder: Path):
    store.add(voice("first"))
    old, young = folder / ".tmp-old", folder / ".tmp-young"
    for left in (old, young):
        left.mkdir()
        (left / "voice.json").write_text("{")
    os.utime(old, (0, 0))
    assert [record.name for record in store.records()] == ["first"]
    store.add(voice("second"))
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("damage", [
    lambda kept: (kept / "voice.json").write_bytes(b"{"),
    lambda kept: (kept / "voice.json").write_bytes(b"[]"),
    lambda kept: (kept / "voice.json").write_bytes(b"\xff"),
    lambda kept: (kept / "latents.safetensors").write_bytes(b"short"),
    lambda kept: (kept / "latents.safetensors").write_bytes((kept / "latents.safetensors").read_bytes()[:-4]),
    lambda kept: os.truncate(kept / "latents.safetensors", 0),
])
def test_damaged_files_are_said_to_be(store: VoiceStore, folder: Path, damage: Callable[[Path], object]):
    store.add(voice("anna"))
    (kept,) = folder.iterdir()
    damage(kept)
    with pytest.raises(RequestError, match="the files of the voice 'anna' are damaged") as caught:
        store.get("anna")
    assert caught.value.code is ErrorCode.INTERNAL
    store.remove("anna")
    store.add(voice("anna"))
    assert store.get("anna").record.name == "anna"


def test_latents_of_another_voice_are_noticed(store: VoiceStore, folder: Path):
    store.add(voice("anna", seed=1))
    store.add(voice("bert", seed=2))
    anna, bert = (folder / file_name(name) / "latents.safetensors" for name in ("anna", "bert"))
    shutil.copy(bert, anna)
    assert code_of(lambda: store.get("anna")) is ErrorCode.INTERNAL


def test_a_voice_that_is_removed_while_it_is_read_is_unknown(store: VoiceStore, monkeypatch: pytest.MonkeyPatch):
    store.add(voice("anna"))
    read = files.VoiceFolder.record

    def removed_after(self: files.VoiceFolder) -> bytes:
        data = read(self)
        store.remove("anna")
        return data

    monkeypatch.setattr(files.VoiceFolder, "record", removed_after)
    assert code_of(lambda: store.get("anna")) is ErrorCode.UNKNOWN_VOICE


def test_a_folder_that_is_none(tmp_path: Path):
    (tmp_path / "file").touch()
    store = open_store(tmp_path / "file")
    assert code_of(lambda: store.add(voice("anna"))) is ErrorCode.INTERNAL
    assert code_of(lambda: store.get("anna")) is ErrorCode.INTERNAL


def test_content_not_the_name_tells_voices_apart():
    same = voice("a", seed=1).record.digest
    assert same == voice("b", seed=1).record.digest
    others = {
        voice("a", seed=2).record.digest,
        voice("a", seed=1, kind="prompt").record.digest,
        voice("a", seed=1, kind="reference").record.digest,
        Voice.make("a", MODEL, latents(1), "other words", latents(1001, 3)).record.digest,
        Voice.make("a", MODEL, None, "", latents(1)).record.digest,
        Voice.make("a", MODEL, latents(1), "", None).record.digest,
    }
    assert len(others | {same}) == 7


def test_records_of_later_versions_can_be_read():
    record = voice("a").record
    values = {**json.loads(record.to_json()), "new": [1]}
    assert VoiceRecord.from_json(json.dumps(values).encode()) == record


def test_the_store_needs_no_torch():
    program = "import sys, voxcpm_core.voices; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
