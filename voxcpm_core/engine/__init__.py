"""The continuous-batching engine: add, cancel, and a loop of plan, launch, collect."""

from voxcpm_core.engine.build import build_warm_core
from voxcpm_core.engine.loop import EngineLoop

__all__ = ["EngineLoop", "build_warm_core"]
