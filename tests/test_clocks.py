"""A wall clock may jump: nothing that waits, measures or expires reads it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WALL = re.compile(
    r"time\.time\b|\btime_ns\b(?<!monotonic_ns)(?<!perf_counter_ns)|\bdatetime\.(?:now|utcnow|today)\b|\b(?:local|gm)time\("
    r"|CLOCK_REALTIME|\bfrom time import|\.st_mtime\b"
)
# What people and other programs are told of the time of day, and files that were abandoned, by the clock of their
# folder: a jump tells them wrongly, or sweeps them early or late, and nothing else.
MAY = {
    "voxcpm_core/metrics/instance.py": "the metric of when an engine last told its figures",
    "voxcpm_core/voices/voice.py": "when a voice was registered",
    "voxcpm_core/lora/store.py": "when an adapter was registered",
    "voxcpm_core/shared_folder.py": "files that a killed server left",
    "voxcpm_core/tracing/request.py": "when spans began, from where a monotonic clock goes on (test_tracing)",
    "client/voxcpm_client/cli/partial.py": "files that a killed command left",
}


def test_nothing_else_reads_the_wall_clock():
    files = [file for folder in ("voxcpm_core", "client", "model_repository") for file in (ROOT / folder).rglob("*.py")]
    readers = {str(file.relative_to(ROOT)) for file in files if WALL.search(file.read_text())}
    assert readers == set(MAY)
