"""The connections of one client: opened at the first request, shared by all its streams."""

from __future__ import annotations

import asyncio
import os
import threading

import grpc
import grpc.aio

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own waits grow to two minutes, in which a server that is back would still be "unavailable".
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class Channels:
    """One channel for all threads, and one for each event loop, which cannot share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._blocking: grpc.Channel | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, grpc.aio.Channel] = {}

    def blocking(self, url: str) -> grpc.Channel:
        """The channel for threads."""
        with self._lock:
            self._leave_those_of_the_parent()
            if self._blocking is None:
                self._blocking = grpc.insecure_channel(url, _OPTIONS)
            return self._blocking

    def of_this_loop(self, url: str) -> grpc.aio.Channel:
        """The channel for the event loop that runs."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._leave_those_of_the_parent()
            self._by_loop = {known: channel for known, channel in self._by_loop.items() if not known.is_closed()}
            if loop not in self._by_loop:
                self._by_loop[loop] = grpc.aio.insecure_channel(url, _OPTIONS)
            return self._by_loop[loop]

    def close(self) -> None:
        """End the blocking streams and their connection; the next request opens another one."""
        with self._lock:
            channel, self._blocking = self._blocking, None
        if channel is not None:
            channel.close()

    async def aclose(self) -> None:
        """End the streams of the event loop that runs, and their connection."""
        with self._lock:
            channel = self._by_loop.pop(asyncio.get_running_loop(), None)
        if channel is not None:
            await channel.close()

    def _leave_those_of_the_parent(self) -> None:
        # A connection does not survive a fork, and closing it here would end the parent's streams.
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self._blocking, self._by_loop = None, {}
