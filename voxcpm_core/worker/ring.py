"""Shared memory through which a worker hands the outputs of its steps over.

The file has no name (memfd): it needs no room in /dev/shm and goes away with the last process that maps it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from voxcpm_core.config import EngineConfig, ModelConfig
from voxcpm_core.output_layout import OutputLayout
from voxcpm_core.types import FloatArray

NUM_SLOTS = 12  # two steps in flight; what others hold is still being encoded or sent
_FREE, _BUSY = b"\0", 1  # a slot's flag
_FLAG_BYTES = mmap.PAGESIZE  # the slots' flags, before the slots


@dataclass(frozen=True)
class RingGeometry:
    """Sizes on which both processes must agree, in bytes."""

    slot_bytes: int

    @classmethod
    def of(cls, model: ModelConfig, config: EngineConfig) -> RingGeometry:
        """Room for the outputs of a full step in each slot."""
        needed = OutputLayout.of(model).num_bytes(config.max_running)
        return cls(-(-needed // mmap.PAGESIZE) * mmap.PAGESIZE)

    @property
    def total_bytes(self) -> int:
        return _FLAG_BYTES + NUM_SLOTS * self.slot_bytes

    def slot_offset(self, slot: int) -> int:
        return _FLAG_BYTES + slot * self.slot_bytes


class Ring:
    """One process's view. A slot's flag is a byte: the worker sets it, and whoever is done with the slot clears it."""

    def __init__(self, geometry: RingGeometry, fd: int) -> None:
        """`fd`, of the file, becomes the ring's own."""
        self.geometry = geometry
        self.fd = fd
        self.memory = mmap.mmap(fd, geometry.total_bytes)
        self._address = _address_of(np.frombuffer(self.memory, np.uint8))
        self._file = weakref.finalize(self, os.close, fd)

    @classmethod
    def create(cls, geometry: RingGeometry) -> Ring:
        fd = os.memfd_create("voxcpm-ring")
        os.ftruncate(fd, geometry.total_bytes)
        return cls(geometry, fd)

    def take(self) -> int | None:
        """A free slot, now busy; None while there is none."""
        slot = self.memory.find(_FREE, 0, NUM_SLOTS)
        if slot < 0:
            return None
        self.memory[slot] = _BUSY
        return slot

    @property
    def num_free(self) -> int:
        return self.memory[:NUM_SLOTS].count(_FREE)

    def release(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.memory[slot] = _FREE[0]

    def locate(self, array: FloatArray) -> tuple[int, int]:
        """Slot of an array in the ring, and its place there in floats; ValueError when it lies elsewhere."""
        slot, offset = divmod(_address_of(array) - self._address - _FLAG_BYTES, self.geometry.slot_bytes)
        if not 0 <= slot < NUM_SLOTS:
            raise ValueError("the array is not in the ring")
        return slot, offset // 4

    def floats(self, slot: int) -> FloatArray:
        """A new array over a slot. Every view of it keeps this one alive, so its end is the end of all of them."""
        return np.frombuffer(self.memory, np.float32, self.geometry.slot_bytes // 4, self.geometry.slot_offset(slot))

    def close(self) -> None:
        """Close the file; idempotent. Arrays over its memory stay."""
        self._file()


def _address_of(array: npt.NDArray[Any]) -> int:
    """Of the first byte of a contiguous array; several times faster than numpy's own ways to ask."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
