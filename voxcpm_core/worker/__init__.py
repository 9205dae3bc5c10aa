"""The engine in a process of its own: what holds a CUDA context may die without taking the caller along."""

from voxcpm_core.worker.handle import WorkerHandle, start_worker

__all__ = ["WorkerHandle", "start_worker"]
