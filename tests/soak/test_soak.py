"""Many short requests of all kinds against one server: every answer ends, and nothing in any process grows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.instance import Instance
from tests.server.wire import call
from tests.soak.flatness import trends
from tests.soak.load import Load
from tests.soak.processes import MODELS
from tests.soak.report import write_report
from tests.soak.watch import Watch
from voxcpm_client.server import TritonServer, find_repository

ROOT = Path(__file__).parents[2]
NUM_REQUESTS = int(os.environ.get("SOAK_REQUESTS", "10000"))
SHM_PREFIX = f"voxcpm_triton_shm_{os.getpid()}_"
NUM_LASTING = {"tritonserver": 1, "stub": 4, "worker": 1, **dict.fromkeys(MODELS, 1)}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_nothing_grows_and_every_answer_ends(start_server: Callable[..., TritonServer]):
    server = start_server(repository=find_repository())
    load = Load(server, NUM_REQUESTS)
    with Watch(server.pid, SHM_PREFIX, load.progress) as watch:
        load.run()
    with Instance(server) as instance:  # the callers who left cannot tell; the engine can
        instance.wait_until_idle()
    found = trends(watch.samples)
    failures = [f"{trend.name} grew from {trend.early:g} to {trend.late:g}" for trend in found if not trend.is_flat]
    failures += [f"{role} was started anew" for role, count in NUM_LASTING.items() if len(watch.pids[role]) != count]
    print(write_report(ROOT, load, found, len(watch.samples), failures))
    assert not load.failures
    assert not failures
    assert call(server, max_length=1).errors == []
