"""Work that may crash, hang or hold the interpreter, done in small child processes. No torch here."""

from voxcpm_core.children.child import ChildDied, ChildTooSlow, Departure
from voxcpm_core.children.pool import ChildPool, stays

__all__ = ["ChildDied", "ChildPool", "ChildTooSlow", "Departure", "stays"]
