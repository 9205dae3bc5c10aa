"""KV pages of prefixes that requests have in common, kept after the request that filled them.

What is shared is a reference, which stands first in every prefill: only that is the same whatever text follows it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from voxcpm_core.scheduler.pools import PagePool

PrefixKey = tuple[str, str]  # digests of the reference, and of the adapter that the model had ("" for none)


class PrefixCache:
    """Keeps pages up to a number, least recently used out, and gives them up when streams need more than are free."""

    def __init__(self, pages: PagePool, max_pages: int) -> None:
        """`max_pages`: 0 keeps nothing."""
        self.max_pages = max_pages
        self.num_pages = 0
        self._pool = pages
        self._kept: OrderedDict[PrefixKey, tuple[int, ...]] = OrderedDict()

    def find(self, key: PrefixKey) -> tuple[int, ...]:
        """The pages of a prefix in order, none when it is not known. The last one may be filled in part."""
        pages = self._kept.get(key, ())
        if pages:
            self._kept.move_to_end(key)
        return pages

    def keep(self, key: PrefixKey, pages: Sequence[int]) -> None:
        """Keep the pages of a prefix, which a stream holds and has filled, unless it is known already."""
        if key in self._kept or len(pages) > self.max_pages:
            return
        while self.num_pages + len(pages) > self.max_pages:
            self._evict()
        self._kept[key] = tuple(pages)
        self.num_pages += len(pages)
        self._pool.keep(pages)

    def make_room(self, num_pages: int) -> None:
        """Let so many pages be free, if giving up those that nobody uses can do that."""
        if self._pool.num_free + self._pool.num_idle >= num_pages:
            while self._pool.num_free < num_pages:
                self._evict()

    def clear(self) -> None:
        while self._kept:
            self._evict()

    def check_integrity(self) -> None:
        """The pool keeps exactly the pages that are here."""
        kept = [page for pages in self._kept.values() for page in pages]
        assert len(kept) == self.num_pages <= self.max_pages, "kept pages do not balance"
        assert self._pool.kept == sorted(kept), "a page is kept twice, or for nobody"

    def _evict(self) -> None:
        _, pages = self._kept.popitem(last=False)
        self.num_pages -= len(pages)
        self._pool.unkeep(pages)
