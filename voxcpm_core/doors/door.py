"""An instance of the Triton model without an engine."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Any

from voxcpm_core.doors.link import Link
from voxcpm_core.doors.messages import Asked
from voxcpm_core.doors.place import InstancePlace
from voxcpm_core.doors.stream import DoorStream
from voxcpm_core.errors import ErrorCode, RequestError, not_ready
from voxcpm_core.local.client import connect_instances
from voxcpm_core.serving.channel import Channel
from voxcpm_core.serving.parameters import request_id_of, utf8_or_none
from voxcpm_core.serving.poller import CancelPoller
from voxcpm_core.serving.responses import TritonResponses
from voxcpm_core.serving.sender_pool import SenderPool
from voxcpm_core.threads import in_thread

RETRY_S = 0.05
FIRST_CONNECTED_S = 5.0  # the model is ready once all instances are, so the engine's is there
READY_ASKED_S = 1.0  # Triton allows the answer 5 s
CONNECTED_AGAIN_S = 4 * RETRY_S  # Triton does not start the stub of an instance again


class Door:
    """What Triton calls. It keeps a connection to the instance with the engine and passes on what comes either way."""

    def __init__(self, place: InstancePlace, pb_utils: Any) -> None:
        self._place = place
        self._logger = pb_utils.Logger
        self._responses = TritonResponses(pb_utils)
        self._pool = SenderPool()
        self._poller = CancelPoller()
        self._numbers = itertools.count()
        self._cond = threading.Condition()
        self._link: Link | None = None
        self._had_link = False
        self._engine_name = ""  # of the link's other side
        self._closing = threading.Event()
        self._connecting = in_thread(self._stay_connected, "voxcpm-door")

    @property
    def is_ready(self) -> bool:
        """Whether the instance with the engine is there and says that it is ready."""
        with self._cond:
            name = self._engine_name if self._link is not None else None
        with suppress(RequestError, OSError), ExitStack() as stack:
            for client in connect_instances(self._place.model, os.getppid(), READY_ASKED_S):
                stack.enter_context(client)
                if client.name == name:
                    return bool(client.ask("status")["ready"])
        return False

    def execute(self, requests: Iterable[Any]) -> None:
        """Pass each request on; blocks while the engine is full and never raises."""
        for request in requests:
            given_id = utf8_or_none(request.request_id)
            request_id = request_id_of(given_id)
            channel = Channel(request.get_response_sender(), self._responses, request_id)
            with channel.answering(self._logger.log_error):
                self._pass_on(request, None if given_id is None else request_id, channel)

    def close(self) -> None:
        """End the connection, with it what still runs, and all threads."""
        self._closing.set()
        with self._cond:
            link = self._link
            self._cond.notify_all()
        if link is not None:
            link.close()
        self._connecting.result()
        self._pool.close()
        self._poller.close()

    def _pass_on(self, request: Any, request_id: str | None, channel: Channel) -> None:
        asked = Asked.of(next(self._numbers), request, request_id)
        link = self._connected()
        stream = DoorStream(asked.number, channel, link, self._pool, self._logger.log_error)
        link.ask(asked, stream)
        self._poller.watch(stream)
        stream.taken.wait()

    def _connected(self) -> Link:
        with self._cond:
            timeout_s = CONNECTED_AGAIN_S if self._had_link else FIRST_CONNECTED_S
            self._cond.wait_for(lambda: self._link is not None or self._closing.is_set(), timeout_s)
            if self._link is not None:
                return self._link
            if self._had_link:
                message = "the instance with the engine has ended; the model must be loaded again"
                raise RequestError(ErrorCode.NOT_READY, message)
            raise not_ready("the instance with the engine cannot be reached")

    def _stay_connected(self) -> None:
        while not self._closing.wait(RETRY_S):
            link = self._connect()
            if link is None:
                continue
            with self._cond:
                self._link, self._had_link = link, True
                self._cond.notify_all()
            if self._closing.is_set():
                link.close()
            link.serve()
            with self._cond:
                self._link = None

    def _connect(self) -> Link | None:
        """Claim a place at one of the model's instances; of several loads of the model, only the own one gives it.

        Later at that one alone: another's free place is for a door of its own load, which may be about to come.
        """
        link = None
        for client in connect_instances(self._place.model, os.getppid()):
            try:
                if link is None and self._engine_name in ("", client.name):
                    client.ask("door", **self._place.claim())
                    link, self._engine_name = Link(client.detach()), client.name
            except (RequestError, OSError):
                continue
            finally:
                client.close()
        return link
