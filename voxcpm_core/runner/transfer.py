"""Device-to-host copies of step outputs: pinned memory and an event on CUDA, nothing at all on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor


class HostCopy:
    """Tensors on their way to the host. `wait` blocks until they are there and returns them."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self._event: torch.cuda.Event | None = None
        if tensors[0].device.type != "cuda":
            self._tensors = tensors
            return
        # torch caches pinned blocks, so this allocates only until every size has been seen twice.
        self._tensors = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
        for host, dev in zip(self._tensors, tensors, strict=True):
            host.copy_(dev, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(tensors[0].device))

    def wait(self) -> list[Tensor]:
        if self._event is not None:
            self._event.synchronize()
        return self._tensors
