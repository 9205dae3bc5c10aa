"""A training step as a CUDA graph: its thousands of small kernels take longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

WARM_UPS = 3

Results = TypeVar("Results")


class CapturedStep(Generic[Results]):
    """Repeats one step for inputs of the examples' shapes. Making it runs the step a few times for real."""

    def __init__(self, step: Callable[..., Results], *examples: Tensor, pool: Any = None) -> None:
        """`step` takes tensors and returns some; it never waits for the device, and leaves parameters and optimiser
        states where they are. `pool`: memory shared with other graphs, none of which then runs at the same time.
        """
        self._inputs = [example.clone() for example in examples]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                step(*self._inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            self._results = step(*self._inputs)

    @property
    def pool(self) -> Any:
        return self._graph.pool()

    def __call__(self, *values: Tensor) -> Results:
        """The results are overwritten by the next call, also of another step in the same pool."""
        for own, value in zip(self._inputs, values, strict=True):
            own.copy_(value, non_blocking=True)
        self._graph.replay()
        return self._results
