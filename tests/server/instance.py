"""A server's engine instance, seen through its local socket: the worker's own counters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.server.wire import call
from voxcpm_client.server import TritonServer
from voxcpm_core.local.client import connect_instances

GENEROUS_S = 60.0
POLL_S = 0.002


class Instance:
    """The one engine instance of `server`. Use it as a context manager."""

    def __init__(self, server: TritonServer) -> None:
        self.server = server
        (self._client,) = connect_instances("voxcpm", server.pid, GENEROUS_S)

    def status(self) -> dict[str, Any]:
        return self._client.ask("status")

    def queue(self) -> list[str]:
        """Ids of the requests that wait in the engine or at the gate."""
        waiting: list[str] = self._client.ask("queue")["waiting"]
        return waiting

    def cancel(self, request_id: str) -> int:
        """End all requests of that id; returns how many there were."""
        num_cancelled: int = self._client.ask("cancel", request_id=request_id)["cancelled"]
        return num_cancelled

    def drain(self, deadline_ms: int) -> None:
        """Take no more requests, for good, and end those that are inside after so long."""
        self._client.ask("drain", deadline_ms=deadline_ms)

    def wait(self, condition: Callable[[dict[str, Any]], bool], timeout_s: float = GENEROUS_S) -> float:
        """Wait until the status is so; returns the seconds that it took."""
        start_s = time.monotonic()
        while not condition(status := self.status()):
            assert time.monotonic() - start_s < timeout_s, f"not so after {timeout_s} s: {status}"
            time.sleep(POLL_S)
        return time.monotonic() - start_s

    def wait_for(self, timeout_s: float = GENEROUS_S, **expected: Any) -> float:
        """Wait until these fields of the status have these values."""
        return self.wait(lambda status: all(status[name] == value for name, value in expected.items()), timeout_s)

    def wait_until_idle(self, timeout_s: float = GENEROUS_S) -> float:
        """Wait until no stream holds or waits for a slot or a page."""
        return self.wait_for(timeout_s, running=0, waiting=0, pages_used=0)

    def wait_until_it_waits(self, *request_ids: str) -> None:
        """Wait until these requests have come; nothing is generated of them yet."""
        self.wait(lambda _: set(request_ids) <= set(self.queue()))

    def assert_nothing_is_planned(self, during_s: float = 0.3) -> None:
        before = self.status()
        time.sleep(during_s)
        after = self.status()
        assert after["num_patches"] == before["num_patches"]
        assert (after["running"], after["waiting"], after["pages_used"]) == (0, 0, 0)

    def step_s(self, num_patches: int = 20) -> float:
        """How long one step takes with a stream alone and two timesteps."""
        options = {"inference_timesteps": 2, "ignore_stop": True, "length_cap": False}
        start_s, before = time.monotonic(), self.status()["num_steps"]
        assert call(self.server, max_length=num_patches, **options).errors == []
        return (time.monotonic() - start_s) / (self.status()["num_steps"] - before)

    def __enter__(self) -> Instance:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def logged_ends(server: TritonServer, request_id: str) -> list[tuple[str, int]]:
    """The codes that the server's log says a request ended with, each with the patches generated until then."""
    assert server.log_file is not None
    found = re.findall(rf"request '{request_id}': ([A-Z_]+) after (\d+) patches", server.log_file.read_text())
    return [(code, int(num_patches)) for code, num_patches in found]


def logged_end(server: TritonServer, request_id: str) -> tuple[str, int]:
    """Wait for the one such line of a request."""
    last_s = time.monotonic() + GENEROUS_S
    while not (ends := logged_ends(server, request_id)) and time.monotonic() < last_s:
        time.sleep(10 * POLL_S)
    (end,) = ends
    return end
