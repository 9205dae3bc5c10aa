"""The continuous-batching engine: add, cancel, and a loop of plan, launch, collect."""

from voxcpm_core.engine.build import start_engine
from voxcpm_core.engine.core import EngineCore
from voxcpm_core.engine.threaded import ThreadedEngine

__all__ = ["EngineCore", "ThreadedEngine", "start_engine"]
