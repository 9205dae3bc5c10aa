"""The slots of a batch, where its graph reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from voxcpm_core.runner.upload import upload_into


class SlotNumbers:
    """The slots of a batch on the device; sent again only when they are others."""

    def __init__(self, max_size: int, nobody: int, device: torch.device) -> None:
        self._nobody = nobody
        self._dev = torch.full((max_size,), nobody, device=device)  # int64
        self._now: list[int] = [nobody] * max_size

    def nobody(self, size: int) -> Tensor:
        """The static tensor of a batch of that size, of nobody's slot alone: a capture runs for real. # int64 [size]"""
        self.set((), size)
        return self.of(size)

    def of(self, size: int) -> Tensor:
        """What was set for a batch of that size. # int64 [size]"""
        return self._dev[:size]

    def set(self, slots: Sequence[int], size: int) -> None:
        wanted = [*slots, *[self._nobody] * (size - len(slots))]
        if self._now[:size] != wanted:
            upload_into(self._dev[:size], np.array(wanted))
            self._now[:size] = wanted
