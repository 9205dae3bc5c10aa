"""The report of a load as JSON; `schema` changes when a name or a meaning does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from voxcpm_client.load.asking import Script
from voxcpm_client.load.row import Row

SCHEMA = 1


def as_json(script: Script, server: str, rows: Sequence[Row], is_stopped: bool) -> dict[str, Any]:
    """Who was asked, what for, and the rows. Files of the request are told by their size."""
    options = {name: value for name, value in script.options.items() if value is not None}
    return {
        "schema": SCHEMA,
        "server": server,
        "url": script.url,
        "model": script.model,
        "num_texts": len(script.texts),
        "seed": script.seed,
        "options": {k: f"{len(v)} bytes" if isinstance(v, bytes) else v for k, v in options.items()},
        "stopped": is_stopped,
        "rows": [row.as_json() for row in rows],
    }
