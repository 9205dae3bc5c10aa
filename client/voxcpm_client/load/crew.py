"""The processes that make a load together, so that none is so busy that it notices a chunk late."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType

from voxcpm_client.load.share import Share, ShareResult, run_share
from voxcpm_client.load.stop import Stop

CLIENTS_PER_PROCESS = 16
CORES_PER_PROCESS = 4  # the server has the rest


def default_processes(num_clients: int) -> int:
    """How many processes to use for so many streams at once, on this machine."""
    wanted = -(-num_clients // CLIENTS_PER_PROCESS)
    return max(1, min(wanted, (os.cpu_count() or 1) // CORES_PER_PROCESS))


class Crew:
    """Runs shares at the same time, each in a process of its own; a single one in this process.

    `stop` may be called from a signal's handler; what was measured until then is returned, and nothing runs any more.
    """

    def __init__(self, num_processes: int) -> None:
        self._stop = Stop()
        self._children = [_Child() for _ in range(num_processes)] if num_processes > 1 else []
        for child in self._children:
            child.answer()
        self.num_processes = num_processes

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set

    def run(self, shares: Sequence[Share]) -> list[ShareResult]:
        """At most as many shares as there are processes. Raises RuntimeError when a process fails."""
        if not self._children:
            return [run_share(share, self._stop) for share in shares]
        with ThreadPoolExecutor(len(self._children)) as threads:
            pairs = zip(self._children, shares, strict=False)
            running = [threads.submit(child.run, share) for child, share in pairs]
            if any(each.exception() for each in wait(running, return_when=FIRST_EXCEPTION).done):
                self.stop()  # the others, which would be waited for
            return [each.result() for each in running]

    def stop(self) -> None:
        self._stop.set()
        for child in self._children:
            child.stop()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:
            child.end()


class _Child:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "voxcpm_client.load.child"]
        # In a session of its own Ctrl-C in a terminal does not reach it: `stop` tells it.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._sending = threading.RLock()  # a signal's handler may send while a thread does

    def run(self, share: Share) -> ShareResult:
        with suppress(BrokenPipeError):  # the answer tells that it has ended
            self._send(share)
        result = self.answer()
        assert isinstance(result, ShareResult)
        return result

    def answer(self) -> object:
        """What the process tells next."""
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except EOFError:
            status = self._process.wait()
            raise RuntimeError(f"a process of the load generator ended with exit status {status}") from None

    def stop(self) -> None:
        with suppress(BrokenPipeError):
            self._send(None)

    def end(self) -> None:
        self.stop()
        self._process.communicate()

    def _send(self, message: Share | None) -> None:
        assert self._process.stdin is not None
        with self._sending:
            self._process.stdin.write(pickle.dumps(message))
            self._process.stdin.flush()
