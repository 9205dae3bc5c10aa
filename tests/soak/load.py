"""Works a number of requests off in a few threads."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from tests.soak.kinds import KINDS
from tests.soak.other_models import OTHER_KINDS
from voxcpm_client.server import TritonServer

NUM_CALLERS = 8
ALL_KINDS = [*KINDS, *OTHER_KINDS]


class Load:
    """The requests are the same in every run; which caller sends which is not."""

    def __init__(self, server: TritonServer, num_requests: int) -> None:
        self.sent: Counter[str] = Counter()
        self.failures: list[str] = []
        self.seconds = 0.0
        self.num_done = 0
        self._server = server
        self._num_requests = num_requests
        self._next = iter(range(num_requests))
        self._lock = threading.Lock()

    def progress(self) -> float:
        return self.num_done / self._num_requests

    def run(self) -> None:
        start_s = time.monotonic()
        callers = [threading.Thread(target=self._call, name=f"caller-{index}") for index in range(NUM_CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        self.seconds = time.monotonic() - start_s

    def _call(self) -> None:
        while True:
            with self._lock:
                number = next(self._next, None)
            if number is None:
                return
            draw = random.Random(number)
            (kind,) = draw.choices(ALL_KINDS, [kind.weight for kind in ALL_KINDS])
            failure = ""
            try:
                kind.send(self._server, draw, f"soak-{number}")
            except Exception as error:  # noted, and the load goes on
                failure = f"request {number}, {kind.name}: {type(error).__name__}: {error}"
            with self._lock:
                self.sent[kind.name] += 1
                self.num_done += 1
                if failure:
                    self.failures.append(failure)
