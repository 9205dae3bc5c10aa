"""The parent's side of the ring: arrays over a slot, which the worker gets back when the last of them is gone."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from voxcpm_core.types import FloatArray
from voxcpm_core.worker.ring import NUM_SLOTS, Ring

MIN_FREE_SLOTS = 4  # when fewer are left, slow consumers hold the others: arrays are copied instead of lent


class Lender:
    """Copying a step costs more than everything else about it, for the pages of fresh memory above all."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._lent: dict[int, weakref.ref[FloatArray]] = {}  # by slot
        self._returns = [self._return_of(slot) for slot in range(NUM_SLOTS)]

    def open(self, slot: int) -> FloatArray:
        """A float32 array over a slot that the worker has sent. Drop it, and all that is cut from it, soon."""
        if self._ring.num_free < MIN_FREE_SLOTS:
            copy = self._ring.floats(slot).copy()
            self._ring.release([slot])
            return copy
        array = self._ring.floats(slot)
        self._lent[slot] = weakref.ref(array, self._returns[slot])
        return array

    def forget_worker(self) -> None:
        """After the death of a worker: what it had not sent is free again; what is lent stays lent."""
        lent = {slot for slot, array in self._lent.items() if array() is not None}
        self._ring.release(set(range(NUM_SLOTS)) - lent)

    def _return_of(self, slot: int) -> Callable[[object], None]:
        return lambda _: self._ring.release((slot,))
