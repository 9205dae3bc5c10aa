"""Device-to-host copies of step outputs: pinned memory and an event on CUDA, nothing at all on the CPU."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class HostArena(Protocol):
    """Host memory for the outputs of steps, given out slot by slot."""

    def take(self, like: list[Tensor]) -> tuple[int, list[Tensor]]:
        """A slot, and host tensors in it with the shapes and types of `like`."""
        ...

    def collected(self, slot: int) -> None:
        """The step is over: its outputs were read, or it failed."""
        ...


class HostCopy:
    """Tensors on their way to the host, into `arena` where there is one. `wait` blocks until they are there."""

    def __init__(self, tensors: list[Tensor], arena: HostArena | None = None) -> None:
        self._event: torch.cuda.Event | None = None
        self._arena = arena
        on_cuda = tensors[0].device.type == "cuda"
        if arena is not None:
            self._slot, self._tensors = arena.take(tensors)
        elif on_cuda:
            # torch caches pinned blocks, so this allocates only until every size has been seen twice.
            self._tensors = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
        else:
            self._tensors = tensors
            return
        for host, dev in zip(self._tensors, tensors, strict=True):
            host.copy_(dev, non_blocking=True)
        if on_cuda:
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(tensors[0].device))

    def wait(self) -> list[Tensor]:
        try:
            if self._event is not None:
                self._event.synchronize()
            return self._tensors
        finally:
            if self._arena is not None:
                self._arena.collected(self._slot)
