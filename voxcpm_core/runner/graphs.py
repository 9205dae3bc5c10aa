"""Decode steps as CUDA graphs: two launches each, for batches filled up to a few sizes.

A batch is filled up with a slot of its own that belongs to nobody. Solving and finishing are separate graphs, so that
streams with other numbers of Euler steps share the second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from voxcpm_core.runner.decode import DecodeStep, StepOutputs
from voxcpm_core.runner.replay import Replay


def batch_sizes(max_running: int) -> list[int]:
    """The sizes that batches are filled up to: fine enough that filling up costs little at any number of streams."""
    fine = chain((1, 2, 4), range(6, 17, 2), range(18, 33, 2), range(36, 65, 4), range(72, 129, 8))
    sizes = [size for size in chain(fine, range(144, max_running + 16, 16)) if size < max_running]
    return [*sizes, max_running]


class SlotNumbers:
    """The slots of a batch on the device; sent again only when they are others."""

    def __init__(self, max_size: int, nobody: int, device: torch.device) -> None:
        self._nobody = nobody
        self._dev = torch.full((max_size,), nobody, device=device)  # int64
        self._now: list[int] = [nobody] * max_size

    def nobody(self, size: int) -> Tensor:
        """The static tensor of a batch of that size, of nobody's slot alone: a capture runs for real. # int64 [size]"""
        self.set((), size)
        return self._dev[:size]

    def set(self, slots: Sequence[int], size: int) -> None:
        wanted = [*slots, *[self._nobody] * (size - len(slots))]
        if self._now[:size] != wanted:
            self._now[:size] = wanted
            # torch keeps pinned memory until the copy from it is done.
            self._dev[:size].copy_(torch.tensor(wanted, pin_memory=True), non_blocking=True)


class GraphStepper:
    """Graphs of all batch sizes, captured by `capture` or when they are first needed."""

    def __init__(self, step: DecodeStep, max_running: int, nobody: int) -> None:
        """`nobody`: the number of the slot that fills batches up."""
        device = step.model.device
        self._step = step
        self._sizes = batch_sizes(max_running)
        self._solving = SlotNumbers(max_running, nobody, device)
        self._finishing = SlotNumbers(max_running, nobody, device)
        self._solves: dict[tuple[int, int], Replay[None]] = {}
        self._finishes: dict[int, Replay[StepOutputs]] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._beside = torch.cuda.Stream(device)

    def capture(self, num_steps: int) -> None:
        """All sizes with that number of Euler steps, the largest first: the smaller ones then fit into its memory."""
        for size in reversed(self._sizes):
            self._solve(size, num_steps)
            self._finish(size)

    def solve(self, slots: Sequence[int], num_steps: int) -> None:
        size = self._size(len(slots))
        replay = self._solve(size, num_steps)
        self._solving.set(slots, size)
        replay.launch()

    def finish(self, slots: Sequence[int], heard: Sequence[int], max_context: int) -> StepOutputs:
        size = self._size(len(slots))
        replay = self._finish(size)
        self._finishing.set(slots, size)
        replay.launch()
        patches, stop, audio = (output[: len(slots)] for output in replay.outputs)
        return StepOutputs(patches, stop, audio)

    def _size(self, num_rows: int) -> int:
        return self._sizes[bisect_left(self._sizes, num_rows)]

    def _solve(self, size: int, num_steps: int) -> Replay[None]:
        key = size, num_steps
        if key not in self._solves:
            slots = self._solving.nobody(size)
            self._solves[key] = Replay(lambda: self._step.solve(slots, num_steps), self._pool)
        return self._solves[key]

    def _finish(self, size: int) -> Replay[StepOutputs]:
        if size not in self._finishes:
            slots = self._finishing.nobody(size)
            self._finishes[size] = Replay(lambda: self._step.finish(slots, None, 0, self._beside), self._pool)
        return self._finishes[size]
