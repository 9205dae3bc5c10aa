"""Slots and KV pages: fixed pools that must always balance.

What has been free for longest is given out first, since a step that is still under way on the device uses that least
likely.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def pages_for(num_positions: int, page_size: int) -> int:
    """Pages that so many KV positions take."""
    return -(-num_positions // page_size)


class SlotPool:
    """Rows of the runner's state arrays."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = deque(range(num_slots))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def acquire(self) -> int:
        return self._free.popleft()

    def release(self, slot: int) -> None:
        assert 0 <= slot < self.num_slots, slot
        assert slot not in self._free, slot
        self._free.append(slot)


class PagePool:
    """KV pages of `page_size` positions each. Streams may share some, and some may be kept for streams to come."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages = num_pages
        self.page_size = page_size
        self.num_idle = 0  # kept, and used by nobody
        self._free = deque(range(num_pages))
        self._num_users = [0] * num_pages
        self._is_kept = [False] * num_pages

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        """By streams."""
        return self.num_pages - self.num_free - self.num_idle

    @property
    def kept(self) -> list[int]:
        return [page for page, is_kept in enumerate(self._is_kept) if is_kept]

    def acquire(self, num_pages: int) -> tuple[int, ...] | None:
        """Free pages for one user, or None (and nothing taken) when there are not enough."""
        if num_pages > len(self._free):
            return None
        pages = tuple(self._free.popleft() for _ in range(num_pages))
        for page in pages:
            self._num_users[page] = 1
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """One more user of pages that are used or kept."""
        for page in pages:
            if not self._num_users[page]:
                assert self._is_kept[page], page
                self.num_idle -= 1
            self._num_users[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """One user less."""
        for page in pages:
            assert self._num_users[page] > 0, page
            self._num_users[page] -= 1
            if not self._num_users[page]:
                self._leave(page)

    def keep(self, pages: Sequence[int]) -> None:
        """Pages that are used are not free when their users have gone."""
        for page in pages:
            assert self._num_users[page], page
            assert not self._is_kept[page], page
            self._is_kept[page] = True

    def unkeep(self, pages: Sequence[int]) -> None:
        """They are free as soon as nobody uses them."""
        for page in pages:
            self._is_kept[page] = False
            if not self._num_users[page]:
                self.num_idle -= 1
                self._free.append(page)

    def check_integrity(self, used: Sequence[int]) -> None:
        """`used`: the pages of all streams, one after the other."""
        counts = [0] * self.num_pages
        for page in used:
            counts[page] += 1
        assert counts == self._num_users, "users do not balance"
        idle = [page for page in self.kept if not counts[page]]
        assert len(idle) == self.num_idle, "idle pages do not balance"
        owned = [page for page in range(self.num_pages) if counts[page] or self._is_kept[page]]
        assert sorted([*owned, *self._free]) == list(range(self.num_pages)), "a page is lost, or free and owned"

    def _leave(self, page: int) -> None:
        if self._is_kept[page]:
            self.num_idle += 1
        else:
            self._free.append(page)
