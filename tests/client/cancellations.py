"""How many streams the model `double` has seen cancelled."""

from __future__ import annotations

import time

from voxcpm_client import Client

_LIMIT_S = 5.0


def num_cancelled(client: Client) -> int:
    return int(client.synthesize("count cancelled").audio)


def wait_for_cancelled(client: Client, count: int) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while num_cancelled(client) < count:
        assert time.monotonic() < deadline_s, "the server saw no cancellation"
        time.sleep(0.05)
