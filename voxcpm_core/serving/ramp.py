"""How many patches go into a chunk: few at first for a fast start, more once the listener has a reserve."""

from __future__ import annotations

CHUNK_PATCHES = (1, 1, 2, 4)  # of the first chunks; the last value holds from there on
SAFETY_PATCHES = 1.5  # the playback reserve under which nothing is held back


class ChunkRamp:
    """The chunk sizes of one stream. The caller gives the clock, in seconds."""

    def __init__(self, patch_seconds: float) -> None:
        self._patch_seconds = patch_seconds
        self._num_chunks = 0
        self._num_delivered = 0  # patches
        self._first_s = 0.0

    def is_due(self, num_held: int, now_s: float) -> bool:
        """Whether the `num_held` patches held back must be sent now.

        A player that began at the first chunk has the delivered audio less the time since then in reserve.
        """
        if num_held >= CHUNK_PATCHES[min(self._num_chunks, len(CHUNK_PATCHES) - 1)]:
            return True
        reserve_s = self._num_delivered * self._patch_seconds - (now_s - self._first_s)
        return num_held > 0 and reserve_s < SAFETY_PATCHES * self._patch_seconds

    def record(self, num_patches: int, now_s: float) -> None:
        """A chunk of `num_patches` was handed to the sender."""
        if self._num_chunks == 0:
            self._first_s = now_s
        self._num_chunks += 1
        self._num_delivered += num_patches
