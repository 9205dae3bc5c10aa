"""The folder of one tritonserver: this user's alone, never another server's, and swept when its server has ended."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from voxcpm_core.local.folder import digest, own_folder

Start = Callable[[], subprocess.Popen[bytes]]


def root(runtime_folder: Path) -> Path:
    return runtime_folder / f"voxcpm-{os.geteuid()}"


def test_only_the_user_can_enter(runtime_folder: Path):
    with own_folder(os.getpid(), create=True) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert root(runtime_folder).stat().st_mode & 0o777 == 0o700


def test_a_umask_that_takes_everything_makes_no_difference(runtime_folder: Path):
    before = os.umask(0o777)
    try:
        with own_folder(os.getpid(), create=True) as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    assert root(runtime_folder).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o701, 0o720, 0o777])
def test_a_folder_that_others_can_enter_is_refused(runtime_folder: Path, mode: int):
    root(runtime_folder).mkdir()
    root(runtime_folder).chmod(mode)
    with pytest.raises(PermissionError, match="mode 0700"), own_folder(os.getpid(), create=True):
        pass


def test_a_link_to_a_folder_is_refused(runtime_folder: Path, tmp_path: Path):
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    root(runtime_folder).symlink_to(target)
    with pytest.raises(OSError, match="voxcpm"), own_folder(os.getpid(), create=True):
        pass
    assert list(target.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_another_users_folder_is_refused(runtime_folder: Path):
    root(runtime_folder).mkdir(mode=0o700)
    os.chown(root(runtime_folder), 12345, 12345)
    with pytest.raises(PermissionError), own_folder(os.getpid(), create=True):
        pass


def test_two_servers_have_two_folders(start_process: Start):
    first, second = start_process(), start_process()
    with own_folder(first.pid, create=True) as folder:
        (folder / "mark").touch()
        with own_folder(second.pid, create=True) as other:
            assert list(other.iterdir()) == []
        assert (folder / "mark").exists(), "a living server's folder is not swept"


def test_the_folder_of_a_server_that_has_ended_is_swept(runtime_folder: Path, start_process: Start):
    ended = start_process()
    with own_folder(ended.pid, create=True) as folder:
        (folder / "mark").touch()
    ended.kill()
    ended.wait()
    with own_folder(os.getpid(), create=True):
        assert len(list(root(runtime_folder).iterdir())) == 1


def test_a_process_id_that_is_used_again_is_another_server(runtime_folder: Path):
    with own_folder(os.getpid(), create=True):
        pass
    (folder,) = root(runtime_folder).iterdir()
    namespace, pid, start_ticks = folder.name.split("-")
    earlier = folder.rename(folder.with_name(f"{namespace}-{pid}-{int(start_ticks) - 1}"))
    foreign = folder.with_name(f"1{namespace}-{pid}-{int(start_ticks) - 1}")
    foreign.mkdir()
    with own_folder(os.getpid(), create=True):
        assert not earlier.exists()
        assert foreign.exists(), "another container's process cannot be judged from here"


def test_no_such_process():
    with pytest.raises(ProcessLookupError), own_folder(2**22 + 1, create=True):
        pass


def test_the_temporary_folder_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "not there"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with own_folder(os.getpid(), create=True):
        assert (tmp_path / f"voxcpm-{os.geteuid()}").is_dir()


def test_digests_are_names_of_files():
    assert digest("a/../b") != digest("a")
    assert all(len(digest(name)) == 16 and digest(name).isalnum() for name in ("", "x" * 5000, "ü/\0"))
