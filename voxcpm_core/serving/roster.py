"""The requests of an instance that are not answered yet."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.gate import Place

MAX_REMEMBERED = 10_000  # streams that have ended
LAST_CHUNKS_S = 60.0  # what is left of a stream that ended well may take so long on its way through an ensemble


class Roster:
    """In the order in which they came, from their arrival to their FINAL. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Channel, Place | None] = {}  # None: it is read, or stands at the gate
        self._over_s: dict[str, float] = {}  # by stream id, the oldest first: from when on no chunk of it comes

    def arrived(self, channel: Channel) -> None:
        """A request that has come; tell it `placed`, or `forget` it when it has been answered."""
        with self._lock:
            self._places[channel] = None

    def forget(self, channel: Channel) -> None:
        """It has been answered."""
        with self._lock:
            self._places.pop(channel, None)

    def placed(self, channel: Channel, place: Place) -> None:
        """It has passed the gate."""
        with self._lock:
            self._drop_closed()
            if not channel.closed:
                self._places[channel] = place

    def waiting(self) -> list[str]:
        """Ids of the requests of which nothing is generated yet."""
        with self._lock:
            places = list(self._places.items())
        return [
            channel.request_id for channel, place in places
            if not channel.closed and (place is None or place.is_waiting)
        ]

    def cancel(self, request_id: str) -> int:
        """Cancel all requests of that id; returns how many there are."""
        with self._lock:
            found = [each for each in self._places if each.request_id == request_id and not each.closed]
        for channel in found:
            channel.dismiss(RequestError(ErrorCode.CANCELLED, "cancelled by its id"))
        return len(found)

    def told(self, left: Collection[str], taken: Mapping[str, int]) -> None:
        """What the models behind this one in an ensemble say of streams: those left, and how many chunks were taken."""
        with self._lock:
            self._drop_closed()
            self._over_s.update(dict.fromkeys(self._over_s.keys() & left, 0.0))  # it ended well, and nobody wants it
            found = list(self._places)
        for channel in found:
            if channel.stream_id in left:
                channel.dismiss(RequestError(ErrorCode.CANCELLED, "cancelled by the caller"))
            elif channel.stream_id in taken:
                channel.when_taken(taken[channel.stream_id])

    def over(self, stream_ids: Collection[str]) -> list[str]:
        """Those of these streams of which no chunk comes any more, wherever it was."""
        with self._lock:
            self._drop_closed()
            now_s = time.monotonic()
            return [each for each in stream_ids if self._over_s.get(each, math.inf) <= now_s]

    def dismiss_all(self, error: RequestError) -> None:
        """End all requests with `error`."""
        with self._lock:
            found = [each for each in self._places if not each.closed]
        for channel in found:
            channel.dismiss(RequestError(error.code, str(error)))  # each is raised by itself

    @property
    def num_open(self) -> int:
        with self._lock:
            return sum(not each.closed for each in self._places)

    def _drop_closed(self) -> None:
        for channel in [each for each in self._places if each.closed]:
            del self._places[channel]
            self._over_s[channel.stream_id] = time.monotonic() + (0 if channel.failed else LAST_CHUNKS_S)
        while len(self._over_s) > MAX_REMEMBERED:
            del self._over_s[next(iter(self._over_s))]
