"""Which implementation of each kernel an engine uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from voxcpm_core.kernels.layer_ops import LayerOps, TorchLayerOps
from voxcpm_core.kernels.noise import philox_normal


@dataclass(frozen=True)
class KernelSet:
    """All of them give the same but for the order of sums."""

    layer_ops: LayerOps
    normal: Callable[[Tensor, Tensor, int], Tensor]  # as `philox_normal`


TORCH_KERNELS = KernelSet(TorchLayerOps(), philox_normal)


def triton_kernels(device: torch.device) -> KernelSet:
    """Those for one engine on a CUDA device; torch builds for such bring Triton along."""
    from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps
    from voxcpm_core.kernels.triton_noise import triton_philox_normal

    return KernelSet(TritonLayerOps(device), triton_philox_normal)
