"""Who listens on a port: another server's answer must not be taken for our own."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"


def group_listens(group: int, port: int) -> bool:
    """Whether a process of the process group `group` listens on the TCP port `port`, whatever the address."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    return any(not sockets.isdisjoint(_open_files(pid)) for pid in _members(group)) if sockets else False


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        lines = table.read_text().splitlines()[1:] if table.exists() else []
        for _slot, local, _remote, state, *rest in (line.split() for line in lines):
            if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                inodes.add(rest[5])
    return inodes


def _members(group: int) -> list[str]:
    members = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path("/proc", pid, "stat").read_text()
        except OSError:  # the process has ended
            continue
        if int(stat.rpartition(")")[2].split()[2]) == group:
            members.append(pid)
    return members


def _open_files(pid: str) -> set[str]:
    files = set()
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):  # the process has ended
        for descriptor in os.listdir(folder):
            with suppress(OSError):  # the file was closed
                files.add(os.readlink(f"{folder}/{descriptor}"))
    return files
