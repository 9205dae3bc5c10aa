"""Who has which of the device's slots for adapters. No torch here."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

NO_SLOT = -1  # of a stream without an adapter


class Digested(Protocol):
    """An adapter as the pool knows it."""

    @property
    def digest(self) -> str:
        """Equal for equal weights."""
        ...


class LoraPool:
    """A slot is pinned while streams use its adapter; of the others the least recently used is given away."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._slots: OrderedDict[str, int] = OrderedDict()  # by digest, the least recently used first
        self._num_users = [0] * num_slots

    @property
    def num_pinned(self) -> int:
        return sum(count > 0 for count in self._num_users)

    def acquire(self, lora: Digested) -> int | None:
        """The slot of an adapter for one more stream; None (and nothing taken) when all are pinned by others."""
        slot = self._slots.get(lora.digest)
        if slot is None:
            slot = self._free.pop() if self._free else self._evicted()
            if slot is None:
                return None
            self._slots[lora.digest] = slot
        self._slots.move_to_end(lora.digest)
        self._num_users[slot] += 1
        return slot

    def release(self, slot: int) -> None:
        """One stream less."""
        assert self._num_users[slot] > 0, slot
        self._num_users[slot] -= 1

    def check_integrity(self, users: list[int]) -> None:
        """`users` are the slots of all streams that run."""
        assert self._num_users == [users.count(slot) for slot in range(self.num_slots)], "pins do not balance"
        owned = list(self._slots.values())
        assert sorted(owned + self._free) == list(range(self.num_slots)), "a slot is lost or has two owners"

    def _evicted(self) -> int | None:
        for digest, slot in self._slots.items():
            if not self._num_users[slot]:
                del self._slots[digest]
                return slot
        return None
