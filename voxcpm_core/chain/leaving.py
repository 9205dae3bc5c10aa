"""Telling the engines that a stream has ended behind them: Triton 2.51 tells a running step of an ensemble nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from voxcpm_core.errors import RequestError
from voxcpm_core.local.client import connect_instances

ANSWER_S = 2.0


class Leaver:
    """Asks all engine instances of one tritonserver, from a thread."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._executor = ThreadPoolExecutor(1, "voxcpm-leave")

    def leave(self, stream_id: str) -> None:
        self._executor.submit(self._ask, stream_id)

    def close(self) -> None:
        self._executor.shutdown()

    def _ask(self, stream_id: str) -> None:
        for client in connect_instances(None, self._server_pid, ANSWER_S):
            with client:
                try:
                    client.ask("leave", stream_id=stream_id)
                except (OSError, RequestError):  # it ends, and its streams with it
                    continue
