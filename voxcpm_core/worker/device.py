"""Which device an instance of the Triton model runs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceChoice:
    """A torch device, and a line for the log when it is not what Triton assigned."""

    device: str
    warning: str = ""


def choose_device(configured: str, kind: str, device_id: str, has_cuda: Callable[[], bool]) -> DeviceChoice:
    """`configured` (VOXCPM_DEVICE) wins; else Triton's instance kind ("GPU", "CPU", "MODEL") and device id.

    Triton assigns GPU instances by what the driver shows; where torch sees none the CPU serves instead.
    """
    if configured:
        return DeviceChoice(configured)
    if kind == "CPU":
        return DeviceChoice("cpu")
    if has_cuda():
        return DeviceChoice(f"cuda:{device_id}" if kind == "GPU" else "cuda:0")
    if kind == "GPU":
        return DeviceChoice("cpu", f"instance of kind GPU {device_id}, but torch finds no CUDA device: using the CPU")
    return DeviceChoice("cpu")
