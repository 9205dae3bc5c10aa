"""What the processes of a server hold, from /proc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.processes import PROC, children_by_parent

SHM = Path("/dev/shm")
MODELS = ("audiovae", "mp3_encoder", "voxcpm_blocking", "voxcpm_control", "voxcpm_encode")  # with a process each
_ROLES = {  # by a part of the command line
    "tritonserver": "tritonserver",
    "triton_python_backend_stub": "stub",  # of `voxcpm`; those of the models around it have their names
    **{f"/{model}/": model for model in MODELS},
    "voxcpm_core.worker": "worker",
    "voxcpm_core.audio": "decoder",
}


@dataclass(frozen=True)
class Holding:
    """Of one process at one moment."""

    pid: int
    role: str
    rss_kib: int
    pss_kib: int
    threads: int
    descriptors: int


def holdings(root_pid: int) -> list[Holding]:
    """Of a process and all its descendants that have not ended."""
    return [holding for pid in _family(root_pid) if (holding := _holding(pid)) is not None]


def shared_memory_kib(prefix: str) -> int:
    """Room that the files of /dev/shm whose names begin so take."""
    return sum(file.stat().st_blocks for file in SHM.glob(f"{prefix}*")) // 2


def _family(root_pid: int) -> Iterator[int]:
    children = children_by_parent()
    pids = [root_pid]
    for pid in pids:
        pids.extend(children.get(pid, ()))
        yield pid


def _holding(pid: int) -> Holding | None:
    folder = PROC / str(pid)
    try:
        command = (folder / "cmdline").read_bytes().decode(errors="replace")
        status = dict(re.findall(r"^(\w+):\s+(\d+)", (folder / "status").read_text(), re.M))
        (pss_kib,) = re.findall(r"^Pss:\s+(\d+)", (folder / "smaps_rollup").read_text(), re.M)
        descriptors = len(list((folder / "fd").iterdir()))
    except (OSError, ValueError):  # it ended meanwhile
        return None
    if "VmRSS" not in status:
        return None
    # The last match names the innermost: a stub's command line holds the paths of the server, too.
    role = next((name for part, name in reversed(_ROLES.items()) if part in command), "other")
    return Holding(pid, role, int(status["VmRSS"]), int(pss_kib), int(status["Threads"]), descriptors)
