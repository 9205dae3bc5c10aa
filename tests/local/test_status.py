"""The operation `status`."""

from __future__ import annotations

import json
from types import SimpleNamespace

from voxcpm_core.config import EngineConfig
from voxcpm_core.local.status import InstanceName, status
from voxcpm_core.types import EngineStats


def test_it_has_the_contracts_fields_and_every_counter():
    counters = {name: index for index, name in enumerate(EngineStats._fields)}
    stats = EngineStats(**{**counters, "running": 1, "max_running": 3})
    engine = SimpleNamespace(config=EngineConfig(max_waiting=5), is_ready=True, stats=lambda: stats)
    answer = json.loads(json.dumps(status(InstanceName("voxcpm", "1", "voxcpm_0"), engine, 4, False)))
    del counters["collected_ns"], counters["busy_ns"]
    assert answer == {
        **counters, "model": "voxcpm", "version": "1", "instance": "voxcpm_0", "running": 1, "max_running": 3,
        "max_waiting": 5, "utilization_pct": 33.3, "ready": True, "draining": False, "open": 4,
    }
    assert set(answer) >= {"waiting", "pages_used", "pages_total"}
    drained = status(InstanceName("voxcpm", "1", "voxcpm_0"), engine, 0, True)
    assert (drained["ready"], drained["draining"]) == (False, True), "it takes no requests"
