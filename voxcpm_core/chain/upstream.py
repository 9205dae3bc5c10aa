"""What engines and the models behind them tell each other: Triton 2.51 tells a running step of an ensemble nothing."""

from __future__ import annotations

import threading
import time

from voxcpm_core.chain.kept import KeptStreams
from voxcpm_core.errors import RequestError
from voxcpm_core.local.client import LocalClient, connect_instances

ANSWER_S = 2.0
TELL_S = 0.02  # what happens within it is told at once
ASK_S = 1.0  # between two questions after silent streams


class Upstream:
    """All engine instances of one tritonserver are told everything; each knows its own streams.

    They are asked for streams that have fallen silent: those of which nothing comes any more are given up in `streams`.
    """

    def __init__(self, server_pid: int, streams: KeptStreams) -> None:
        self._server_pid = server_pid
        self._streams = streams
        self._cond = threading.Condition()
        self._left: list[str] = []
        self._taken: dict[str, int] = {}
        self._closing = False
        self._clients: dict[str, LocalClient] = {}
        self._thread = threading.Thread(target=self._run, name="voxcpm-upstream", daemon=True)
        self._thread.start()

    def leave(self, stream_id: str) -> None:
        """Nobody has a use for the stream any more."""
        with self._cond:
            self._left.append(stream_id)
            self._cond.notify()

    def taken(self, stream_id: str, num_chunks: int) -> None:
        """So many chunks of the stream, in all, have been worked off."""
        with self._cond:
            self._taken[stream_id] = num_chunks
            self._cond.notify()

    def close(self) -> None:
        """Tell the rest and end."""
        with self._cond:
            self._closing = True
            self._cond.notify()
        self._thread.join()
        for client in self._clients.values():
            client.close()

    def _run(self) -> None:
        ask_s = 0.0
        while True:
            with self._cond:
                self._cond.wait_for(lambda: self._closing or self._left or self._taken, ASK_S)
                left, self._left = self._left, []
                taken, self._taken = self._taken, {}
                if self._closing and not left and not taken:
                    return
            silent: list[str] = []
            if time.monotonic() >= ask_s:
                silent, ask_s = self._streams.silent(), time.monotonic() + ASK_S
            if left or taken or silent:
                self._tell(left, taken, silent)
                time.sleep(TELL_S)

    def _tell(self, left: list[str], taken: dict[str, int], silent: list[str]) -> None:
        for client in connect_instances(None, self._server_pid, ANSWER_S, but=self._clients):
            self._clients[client.name] = client
        for name, client in list(self._clients.items()):
            try:
                answer = client.ask("told", left=left, taken=taken, silent=silent)
                self._streams.forget(answer["over"])
            except (OSError, RequestError):  # it ends, and its streams with it
                self._clients.pop(name).close()
