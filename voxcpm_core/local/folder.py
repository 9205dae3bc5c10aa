"""Where the sockets of one tritonserver lie: in a folder that no other user can enter and no other server has."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# "r" or "w" of everybody but the owner, also "x": others must not even look up a name.
_OTHERS = 0o077


def digest(name: str) -> str:
    """A model's or an instance's name as part of a file name: short, and of any characters, also half of a pair."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:16]


@contextmanager
def user_folder(create: bool) -> Iterator[Path]:
    """The folder around those of all servers of this user, opened and checked as `own_folder` does."""
    root = _root()
    if create:
        _make(root)
    with _opened(root) as opened:
        yield opened


@contextmanager
def own_folder(server_pid: int, create: bool) -> Iterator[Path]:
    """The folder of the tritonserver with this process id, opened; the path is short and holds inside the context only.

    With `create` it is made, and what servers that have ended left behind is removed. Raises PermissionError where
    a folder is not this user's alone, ProcessLookupError without such a process, and OSError as the file system does.
    """
    name = _server_name(server_pid)
    with user_folder(create) as opened_root:
        if create:
            _sweep(opened_root)
            _make(opened_root / name)
        with _opened(opened_root / name) as opened:
            yield opened


def _make(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        folder.chmod(0o700)  # a umask can take the owner's own rights away


def _root() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    parent = Path(runtime) if runtime and os.access(runtime, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return parent / f"voxcpm-{os.geteuid()}"


@contextmanager
def _opened(folder: Path) -> Iterator[Path]:
    """A checked folder under a path that names it whatever its length: a socket's address has 107 bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            raise PermissionError(f"{folder} must belong to this user alone, mode 0700")
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _server_name(pid: int) -> str:
    """Names the process for good: its id is used again, and is another process's in another container."""
    start_ticks = _start_ticks(pid)
    if start_ticks is None:
        raise ProcessLookupError(f"there is no process {pid}")
    return f"{_pid_namespace()}-{pid}-{start_ticks}"


def _sweep(root: Path) -> None:
    for folder in root.iterdir():
        found = re.fullmatch(rf"{_pid_namespace()}-(\d+)-(\d+)", folder.name)
        if found is not None and _start_ticks(int(found[1])) != int(found[2]):
            shutil.rmtree(folder, ignore_errors=True)  # two servers may sweep at once


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])
