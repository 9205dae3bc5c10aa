"""The few sizes that batches are filled up to, so that each can be a CUDA graph."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from voxcpm_core.runner.newcomers import RowLayout
from voxcpm_core.scheduler import pages_for

PREFILL_POSITIONS = (32, 64, 128, 256, 512, 1024)
MAX_PREFILL_CELLS = 1024  # of a batch; with so many, reading the weights once for all no longer counts
EAGER_STEP = 256  # positions of longer prefixes are filled up to a multiple: kernels are compiled by divisibility
PATCH_COUNTS = (8, 16, 32, 64, 128, 256, 512)  # that the local encoder embeds at once


class RunnerSizes(NamedTuple):
    """How much room a runner has."""

    num_slots: int  # streams at once
    num_pages: int  # of the KV cache
    page_size: int  # positions of a page
    max_positions: int  # of one request
    num_steps: int  # Euler steps of a patch, as most requests want
    max_steps: int  # and as any may want

    @property
    def max_pages(self) -> int:
        """Of one request."""
        return pages_for(self.max_positions, self.page_size)

    @property
    def row_layout(self) -> RowLayout:
        """One slot and one page more than are given out are nobody's."""
        return RowLayout(self.max_pages, nobody=self.num_slots, nobodys_page=self.num_pages)


def batch_sizes(max_running: int) -> list[int]:
    """The sizes that batches are filled up to: fine enough that filling up costs little at any number of streams."""
    fine = chain((1, 2, 4), range(6, 17, 2), range(18, 49, 2), range(52, 65, 4), range(72, 129, 8))
    sizes = [size for size in chain(fine, range(144, max_running + 16, 16)) if size < max_running]
    return [*sizes, max_running]


class PrefillShape(NamedTuple):
    """A batch of newcomers: so many, each filled up to so many positions."""

    rows: int
    positions: int


class PrefillBatch(NamedTuple):
    """Which newcomers are prefilled together, and the shape that they are filled up to."""

    members: tuple[int, ...]  # indices
    shape: PrefillShape
    has_graph: bool


class PrefillShapes:
    """All shapes that have a graph, and how newcomers are shared out among them."""

    def __init__(self, max_positions: int, max_running: int) -> None:
        self._max_positions = max_positions
        positions = [size for size in PREFILL_POSITIONS if size < max_positions]
        if max_positions <= PREFILL_POSITIONS[-1]:
            positions.append(max_positions)
        self._positions = positions
        self.all = [PrefillShape(rows, size) for size in positions for rows in _row_counts(size, max_running)]

    @property
    def shortest_eager(self) -> int | None:
        """What the shortest prefix without a graph is filled up to; None: all have one."""
        following = self._eager_positions(self._positions[-1] + 1)
        return following if following > self._positions[-1] else None

    def has_graph(self, length: int) -> bool:
        """Whether a prefix of so many positions has one."""
        return length <= self._positions[-1]

    def batches(self, lengths: Sequence[int]) -> list[PrefillBatch]:
        """Share out newcomers with prefixes of so many positions."""
        members: dict[int, list[int]] = {}
        batches = []
        for index, length in enumerate(lengths):
            if not self.has_graph(length):
                shape = PrefillShape(1, self._eager_positions(length))
                batches.append(PrefillBatch((index,), shape, has_graph=False))
            else:
                members.setdefault(self._positions[bisect_left(self._positions, length)], []).append(index)
        for positions, indices in members.items():
            counts = [shape.rows for shape in self.all if shape.positions == positions]
            while indices:
                rows = _next_rows(len(indices), counts)
                taken, indices = indices[:rows], indices[rows:]
                batches.append(PrefillBatch(tuple(taken), PrefillShape(rows, positions), has_graph=True))
        return batches

    def _eager_positions(self, length: int) -> int:
        return min(-(-length // EAGER_STEP) * EAGER_STEP, self._max_positions)


def _row_counts(positions: int, max_running: int) -> list[int]:
    """Powers of two, up to the first that holds all running streams."""
    most = max(1, MAX_PREFILL_CELLS // positions)
    counts = [1]
    while counts[-1] < max_running and counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    return counts


def _next_rows(num_left: int, counts: Sequence[int]) -> int:
    """The largest count that at least three quarters of its rows are taken of."""
    return max(count for count in counts if count == 1 or 4 * num_left >= 3 * count)
