"""Adapters on the device: so many slots, in memory that stays where it is, so that CUDA graphs can read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from voxcpm_core.kernels.lora import LoraKernel, LoraStack, Selection
from voxcpm_core.lora.layout import LoraLayout
from voxcpm_core.lora.pool import NO_SLOT


@dataclass(frozen=True, eq=False)
class LoadedLora:
    """An adapter on the host, as a slot takes it."""

    digest: str  # of what it was read from: equal for equal weights
    values: Tensor  # [num_values], pinned where the device is a GPU


class LoraSlots:
    """One engine's. Who has which slot is the scheduler's to say; batches run inside `rows` or `one`.

    While `is_idle`, which is for those to set who know that nobody has an adapter, models do without any of it.
    """

    def __init__(
        self, layout: LoraLayout, num_slots: int, device: torch.device, dtype: torch.dtype, kernel: LoraKernel
    ) -> None:
        self.layout = layout
        self.dtype = dtype
        self._memory = torch.zeros(num_slots, layout.num_values, device=device, dtype=dtype)
        self._factors: Tensor | None = None  # [num_values], of what slots hold; None: all are 1
        self._contents: list[LoadedLora | None] = [None] * num_slots
        self._selection = Selection()
        self._kernel = kernel
        self.is_idle = False
        self._numbers = torch.arange(NO_SLOT, num_slots, device=device)  # int64

    def stack(self, layer: str, factors: Tensor | None = None) -> LoraStack | None:
        """The adapters of the product whose first layer that is; None when nothing adapts it.

        `factors`: [in], that A is to be multiplied by; known of all products before the first `put`.
        """
        target = self.layout.targets.get(layer)
        if target is None:
            return None
        if factors is not None:
            if self._factors is None:
                self._factors = torch.ones_like(self._memory[0])
            self.layout.views(self._factors, target)[0].copy_(factors)
        a, b = self.layout.views(self._memory, target)
        return LoraStack(a, b, target.nums_out, self._selection, self._kernel)

    def put(self, slot: int, lora: LoadedLora) -> None:
        """Copy an adapter into its slot unless it is there: after all work that was launched, before what follows."""
        if self._contents[slot] is not lora:
            self._contents[slot] = None  # should the copy fail
            self._memory[slot].copy_(lora.values, non_blocking=True)
            if self._factors is not None:
                self._memory[slot].mul_(self._factors)
            self._contents[slot] = lora

    @contextmanager
    def rows(self, rows: Tensor) -> Iterator[None]:
        """Inside, sequence b of a batch has the adapter in slot rows[b]. rows: int64 [B], NO_SLOT for none."""
        assert self._selection.rows is None
        self._selection.select(rows)
        try:
            yield
        finally:
            self._selection.select(None)

    @contextmanager
    def one(self, slot: int) -> Iterator[None]:
        """Inside, all sequences have the adapter in that slot."""
        with self.rows(self._numbers[slot + 1 : slot + 2]):
            yield
