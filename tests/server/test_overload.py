"""Far more requests than there is room for, for a while; then calm."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.server.instance import Instance
from voxcpm_client import Client, VoxError, errors
from voxcpm_client.server import TritonServer, find_repository

pytestmark = pytest.mark.server
NUM_CALLERS, ROOM = 24, {"VOXCPM_MAX_RUNNING": "4", "VOXCPM_MAX_WAITING": "2", "VOXCPM_MAX_BLOCKING": "8"}
SAID = {"seed": 1, "max_length": 3, "inference_timesteps": 2}
CALM_S, SLOWER_S = 2.0, 0.5


def ttfa_s(client: Client) -> float:
    """Median of a few requests, one after the other."""
    return statistics.median(client.synthesize("Hello.", **SAID).ttfa_ms for _ in range(9)) / 1e3


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.soak)])
def test_after_an_overload_all_is_as_before_at_once(start_server: Callable[..., TritonServer], seconds: int):
    server = start_server(repository=find_repository(), **ROOM)
    endings: Counter[str] = Counter()

    def call(model: str, until_s: float) -> None:
        with Client(url=server.grpc_url, model=model, retries=0, timeout_s=30) as client:
            while time.monotonic() < until_s:
                try:
                    client.synthesize("Hello.", **SAID)
                    endings[f"{model} spoke"] += 1
                except VoxError as error:
                    endings[f"{model} {type(error).__name__}"] += 1

    with Instance(server) as instance, Client(url=server.grpc_url) as client:
        before_s = ttfa_s(client)
        until_s = time.monotonic() + seconds
        callers = [
            threading.Thread(target=call, args=(model, until_s))
            for model in ("voxcpm", "voxcpm_blocking") for _ in range(NUM_CALLERS)
        ]  # fmt: skip
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        instance.wait_until_idle(CALM_S)
        assert ttfa_s(client) < 3 * before_s + SLOWER_S
    refused = f"voxcpm_blocking {errors.Overloaded.__name__}"
    assert set(endings) == {"voxcpm spoke", "voxcpm_blocking spoke", refused}, "Triton's queue has room for its 24"
    assert min(endings.values()) > NUM_CALLERS, endings
