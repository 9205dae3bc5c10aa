"""One request on its way through a door."""

from __future__ import annotations

import threading

from voxcpm_core.doors.link import Link
from voxcpm_core.doors.messages import Answered
from voxcpm_core.errors import RequestError
from voxcpm_core.faults import Log, internal_error
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.sender_pool import SenderPool


class DoorStream:
    """Sends what the engine's instance answers, in order, from a sender thread; tells it when the caller has gone."""

    is_waiting = False  # unknown here: asked as often as a running one

    def __init__(self, number: int, channel: Channel, link: Link, pool: SenderPool, log: Log) -> None:
        self.taken = threading.Event()
        self._number = number
        self._channel = channel
        self._link = link
        self._log = log
        self._lane = pool.lane(self._handle)

    @property
    def ended(self) -> bool:
        return self._channel.closed

    def was_taken(self) -> None:
        self.taken.set()

    def answer(self, answer: Answered | RequestError) -> None:
        self._lane.put(answer)

    def cancel_if_gone(self) -> bool:
        try:
            if not self._channel.is_cancelled():
                return False
        except Exception as fault:  # the poller serves all streams and must outlive one that cannot be asked
            internal_error(fault, f"request {self._channel.request_id!r}", self._log)
        self._link.leave(self._number)
        return True

    def _handle(self, answer: Answered | RequestError) -> None:
        try:
            if isinstance(answer, RequestError):
                self._channel.fail(answer)
            elif answer.error is not None:
                self._channel.fail_with(*answer.error)
            else:
                if answer.tensors is not None:
                    self._channel.send(answer.tensors)
                if answer.is_final:
                    self._channel.finish()
        except Exception as fault:
            self._link.leave(self._number)
            error = internal_error(fault, f"request {self._channel.request_id!r}", self._log)
            self._channel.refuse(error, self._log)
