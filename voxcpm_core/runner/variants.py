"""What is recorded once for batches in which nobody has an adapter, and once more for all others."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from voxcpm_core.model.voxcpm import VoxCPMModel

Made = TypeVar("Made")


class Variants(Generic[Made]):
    """Recordings by key. A batch without adapters so pays nothing for those that are served."""

    def __init__(self, model: VoxCPMModel) -> None:
        self._model = model
        self._made: dict[tuple[Hashable, bool], Made] = {}

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """That of a key for what the model runs now, made when it is first asked for."""
        variant = key, self._model.is_plain
        if variant not in self._made:
            self._made[variant] = make()
        return self._made[variant]
