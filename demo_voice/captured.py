"""A training step as a CUDA graph: its thousands of small kernels take longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch import Tensor

from voxcpm_core.runner.replay import Replay

WARM_UPS = 3

Results = TypeVar("Results")


class CapturedStep(Generic[Results]):
    """Repeats one step for inputs of the examples' shapes. Making it runs the step a few times for real."""

    def __init__(self, step: Callable[..., Results], *examples: Tensor, pool: Any = None) -> None:
        """`step` takes tensors and returns some; it leaves parameters and optimiser states where they are. What else
        is asked of it, and `pool`, are as for `Replay`.
        """
        self._inputs = [example.clone() for example in examples]
        self._replay = Replay(lambda: step(*self._inputs), pool, WARM_UPS)

    @property
    def pool(self) -> Any:
        return self._replay.pool

    def __call__(self, *values: Tensor) -> Results:
        """The results are overwritten by the next call, also of another step in the same pool."""
        for own, value in zip(self._inputs, values, strict=True):
            own.copy_(value, non_blocking=True)
        self._replay.launch()
        return self._replay.outputs
