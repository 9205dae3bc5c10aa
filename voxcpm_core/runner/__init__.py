"""The only border between host and device: static device state, launch and collect."""

from voxcpm_core.runner.runner import InFlight, Runner

__all__ = ["InFlight", "Runner"]
