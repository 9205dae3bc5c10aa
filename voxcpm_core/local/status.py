"""What an instance says of itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from voxcpm_core.config.engine import EngineConfig
from voxcpm_core.types import EngineStats


@dataclass(frozen=True)
class InstanceName:
    """An engine instance as Triton names it."""

    model: str
    version: str
    instance: str


class Counted(Protocol):
    """What `status` needs of an engine's handle."""

    @property
    def config(self) -> EngineConfig: ...

    @property
    def is_ready(self) -> bool: ...

    def stats(self) -> EngineStats: ...


def status(name: InstanceName, engine: Counted) -> dict[str, Any]:
    """The operation `status`: who this is, how full it is, and the worker's own counters."""
    stats = engine.stats()
    counters = stats._asdict()
    del counters["collected_ns"]  # this host's clock, for benchmarks
    return {
        **asdict(name),
        **counters,
        "max_waiting": engine.config.max_waiting,
        "utilization_pct": round(100 * stats.running / stats.max_running, 1),
        "ready": engine.is_ready,
        "draining": False,
    }
