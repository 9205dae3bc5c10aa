"""Work on the device, recorded as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar

import torch

Results = TypeVar("Results")
HIGH_PRIORITY = -1  # of a stream, which the kernels recorded on it keep


class Replay(Generic[Results]):
    """A captured run of `work`, and what it returned, which each launch overwrites, also of others in its pool."""

    def __init__(
        self, work: Callable[[], Results], pool: Any = None, num_warm_ups: int = 1, yields: bool = False
    ) -> None:
        """Runs `work` for real first, which compiles and loads what it needs; it must never wait for the device.

        `pool`: memory shared with other graphs, none of which then runs at the same time; None: its own. `yields`:
        kernels of graphs that do not, and run at the same time, come first.
        """
        stream = _stream_of(torch.cuda.current_device(), 0 if yields else HIGH_PRIORITY)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(num_warm_ups):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool, stream=stream):
            self.outputs = work()

    @property
    def pool(self) -> Any:
        return self._graph.pool()

    def launch(self) -> None:
        self._graph.replay()


@cache
def _stream_of(device: int, priority: int) -> torch.cuda.Stream:
    """Where work of a device is recorded, so that the workspace torch keeps for a stream is there once a priority. Of
    what yields, prefixes alone have products that use it."""
    return torch.cuda.Stream(device, priority=priority)
