"""Speech from Python, without Triton: pools of engine workers, blocking and asyncio."""

from voxcpm_core.api.async_pool import AsyncPool
from voxcpm_core.api.entry import VoxCPM
from voxcpm_core.api.sync_pool import SyncPool

__all__ = ["AsyncPool", "SyncPool", "VoxCPM"]
