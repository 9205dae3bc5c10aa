"""Host values on their way to the device."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


def upload(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A copy on the device, which nobody waits for; on the CPU the same memory.

    The copy comes from pinned memory, since one from pageable memory waits for the device. torch keeps pinned memory
    until the copy from it is done.
    """
    host = torch.from_numpy(values)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def upload_into(static: Tensor, values: npt.NDArray[Any]) -> None:
    """Likewise, into memory that stays where it is."""
    host = torch.from_numpy(values)
    static.copy_(host.pin_memory() if static.device.type == "cuda" else host, non_blocking=True)
