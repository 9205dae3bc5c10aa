"""Whether what settings ask for can be had on the CPU: beyond its memory Linux kills the process without a word."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from voxcpm_core.errors import ConfigError
from voxcpm_core.scheduler.sizing import MIB

_CONTAINER_LIMITS = (  # of control groups, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)  # fmt: skip


def host_memory_bytes(limits: Iterable[Path] = _CONTAINER_LIMITS) -> int:
    """All memory of the machine, or what its container may take of it."""
    total_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([total_bytes, *filter(None, map(_limit_bytes, limits))])


def require_host_memory(parts: Mapping[str, int]) -> None:
    """`parts`: settings, and the bytes that they make the engine take. Raises ConfigError naming the largest."""
    total_bytes = host_memory_bytes()
    if sum(parts.values()) > total_bytes:
        listed = ", ".join(f"{num_bytes // MIB} MiB by {settings}" for settings, num_bytes in parts.items())
        largest = max(parts, key=lambda settings: parts[settings])
        total = f"{total_bytes // MIB} MiB of memory"
        raise ConfigError(f"{largest}: there are {total}, and the engine would take {listed}")


def _limit_bytes(file: Path) -> int | None:
    """None where there is none."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
