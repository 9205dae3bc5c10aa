"""The worker's side of the ring: host tensors for the outputs of a step, pinned for CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from voxcpm_core.worker.ring import Ring

_POLL_S = 0.0002


class RingArena:
    """Gives each step a slot of the ring.

    A slot goes back by itself at the next `take` after it was collected, unless it was `sent`: then the parent
    frees it. So outputs that nobody wanted (their streams were cancelled) need no care.
    """

    def __init__(self, ring: Ring, pin: bool, announce: Callable[[], None] = lambda: None) -> None:
        """`announce` is called as soon as a step is collected."""
        self.ring = ring
        self._announce = announce
        self._bytes = torch.frombuffer(ring.memory, dtype=torch.uint8)
        self._collected: set[int] = set()
        if pin:
            status = torch.cuda.cudart().cudaHostRegister(self._bytes.data_ptr(), len(self._bytes), 0)
            if int(status) != 0:
                raise RuntimeError(f"the ring could not be pinned: {status}")

    def take(self, num_bytes: int) -> tuple[int, Tensor]:
        """A slot, and so much of its memory. Waits while the parent holds all slots. # uint8 [num_bytes]"""
        self.ring.release(self._collected)
        self._collected.clear()
        while (slot := self.ring.take()) is None:
            time.sleep(_POLL_S)
        offset = self.ring.geometry.slot_offset(slot)
        return slot, self._bytes[offset : offset + num_bytes]

    def collected(self, slot: int) -> None:
        """Its step is over; what is not sent until the next `take` is forgotten."""
        self._announce()
        self._collected.add(slot)

    def sent(self, slot: int) -> None:
        self._collected.discard(slot)
