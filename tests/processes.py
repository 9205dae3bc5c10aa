"""Which processes are whose, as the kernel has them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

PROC = Path("/proc")


def children_by_parent() -> dict[int, list[int]]:
    """Of all processes. A process's own list, `task/*/children`, may lack some while others come and go."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
        children[parent].append(int(stat.parent.name))
    return children
