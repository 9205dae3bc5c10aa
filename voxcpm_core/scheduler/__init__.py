"""Which streams run in the next step. Pure Python: no torch, no device."""

from voxcpm_core.scheduler.pools import PagePool, SlotPool, pages_for
from voxcpm_core.scheduler.scheduler import Scheduler
from voxcpm_core.scheduler.stream import Batch, StepPlan, Stream

__all__ = ["Batch", "PagePool", "Scheduler", "SlotPool", "StepPlan", "Stream", "pages_for"]
