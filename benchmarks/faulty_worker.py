"""A worker in which requests with certain seeds make the GPU fail: for `gpu_check`, run as the worker's module."""

from __future__ import annotations

import torch

from voxcpm_core.runner import InFlight, Runner
from voxcpm_core.scheduler import StepPlan
from voxcpm_core.worker.child import main

ILLEGAL_INDEX_SEED = 666  # a fault that no process survives
OUT_OF_MEMORY_SEED = 667  # one that hurts its step alone

_launch = Runner.launch


def launch(self: Runner, plan: StepPlan) -> InFlight:
    """`Runner.launch`, failing for the seeds above."""
    seeds = {stream.request.seed for stream in plan.batch.streams}
    if OUT_OF_MEMORY_SEED in seeds:
        torch.empty(1 << 50, dtype=torch.uint8, device=self.model.device)
    if ILLEGAL_INDEX_SEED in seeds:
        bounds = torch.arange(4, device=self.model.device)
        bounds[bounds + (1 << 20)]
    return _launch(self, plan)


if __name__ == "__main__":
    Runner.launch = launch  # type: ignore[method-assign]
    main()
