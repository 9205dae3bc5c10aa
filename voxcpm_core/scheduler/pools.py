"""Slots and KV pages: fixed pools that must always balance."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def pages_for(num_positions: int, page_size: int) -> int:
    """Pages that so many KV positions take."""
    return -(-num_positions // page_size)


class SlotPool:
    """Rows of the runner's state arrays; the lowest free one is given out, so that batches stay compact."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def acquire(self) -> int:
        return heapq.heappop(self._free)

    def release(self, slot: int) -> None:
        assert 0 <= slot < self.num_slots, slot
        assert slot not in self._free, slot
        heapq.heappush(self._free, slot)


class PagePool:
    """KV pages of `page_size` positions each."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def acquire(self, num_positions: int) -> tuple[int, ...] | None:
        """Pages for so many positions, or None (and nothing taken) when there are not enough."""
        count = pages_for(num_positions, self.page_size)
        if count > len(self._free):
            return None
        return tuple(self._free.pop() for _ in range(count))

    def release(self, pages: Sequence[int]) -> None:
        self._free.extend(reversed(pages))
        assert len(self._free) <= self.num_pages
