"""What `write` leaves behind when a stream ends well, fails, or never begins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from voxcpm_client import Chunk
from voxcpm_client.cli.output import write


def _chunks(error: BaseException | None = None) -> Iterator[Chunk]:
    for index in range(2):
        yield Chunk(b"ab", index, 1, 16000, index == 1, "stop", 1, "r")
        if error is not None:
            raise error


def _never() -> Iterator[Chunk]:
    raise AssertionError("the request was sent")
    yield


@pytest.mark.parametrize("error", [RuntimeError("lost"), KeyboardInterrupt()])
@pytest.mark.parametrize("old", [None, b"precious"])
def test_a_failure_leaves_the_folder_as_it_was(tmp_path: Path, error: BaseException, old: bytes | None) -> None:
    file = tmp_path / "speech.pcm"
    if old is not None:
        file.write_bytes(old)
    with pytest.raises(type(error)):
        write(_chunks(error), str(file), "pcm_s16le")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == ({file.name: old} if old else {})


def test_a_file_is_replaced_and_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    file, link = tmp_path / "speech.pcm", tmp_path / "link.pcm"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)
    write(_chunks(), str(link), "pcm_s16le")
    assert file.read_bytes() == b"abab"
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """Not what one writes that lives, also where its process cannot be seen, and no other program's file."""
    file, no_pid = tmp_path / "speech [1].pcm", 2**22 + 1  # above the kernel's limit
    left, living, fresh = (tmp_path / f".{file.name}.{pid}.partial" for pid in (no_pid, os.getppid(), no_pid + 1))
    others = [tmp_path / f".{file.name}.partial", tmp_path / f".{file.name}.old.partial", tmp_path / ".x.pcm.7.partial"]
    for each in (left, living, *others):
        each.touch()
        os.utime(each, (0, 0))
    fresh.touch()
    write(_chunks(), str(file), "pcm_s16le")
    assert set(tmp_path.iterdir()) == {file, living, fresh, *others}


@pytest.mark.parametrize("name", ["nowhere/speech.pcm", "file/speech.pcm", ""])
def test_what_cannot_be_written_is_reported_before_the_request(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot write"):
        write(_never(), str(tmp_path / name), "pcm_s16le")


def test_a_named_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.pcm"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(_chunks(), str(pipe), "pcm_s16le")
        assert os.read(reader, 100) == b"abab"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
