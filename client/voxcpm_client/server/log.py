"""Finding in a tritonserver's log why it did not come up."""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

_TAIL_LINES = 40
_FAILED_MODEL = re.compile(r"failed to load '([^']+)' version \d+: ([^\n]+)")


def failure(log_file: Path) -> str:
    """What stopped the models from loading; where the log does not say it, the log's last lines."""
    with log_file.open(errors="replace") as log:
        lines = log.read()
    reasons = dict(_FAILED_MODEL.findall(lines))
    if reasons:
        return "".join(f"; model {name}: {reason}" for name, reason in reasons.items())
    tail = "\n".join(deque((line for line in lines.splitlines() if not line.startswith(("|", "+"))), _TAIL_LINES))
    return f"; the end of its log:\n{tail}"
