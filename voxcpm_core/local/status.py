"""What an instance says of itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from voxcpm_core.handle import EngineHandle


@dataclass(frozen=True)
class InstanceName:
    """An engine instance as Triton names it."""

    model: str
    version: str
    instance: str


def status(name: InstanceName, engine: EngineHandle, num_open: int, is_draining: bool) -> dict[str, Any]:
    """The operation `status`: who this is, how full it is, and the worker's own counters.

    `num_open` are the requests that it has received and not ended.
    """
    stats = engine.stats()
    counters = stats._asdict()
    del counters["collected_ns"], counters["busy_ns"]  # this host's clock, for benchmarks and metrics
    return {
        **asdict(name),
        **counters,
        "open": num_open,
        "max_waiting": engine.config.max_waiting,
        "utilization_pct": round(100 * stats.running / stats.max_running, 1),
        "ready": engine.is_ready and not is_draining,
        "draining": is_draining,
    }
