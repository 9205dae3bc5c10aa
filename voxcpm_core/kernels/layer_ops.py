"""What stands between the matrix products of a transformer block: norms, residual sums, gating. In plain torch."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class LayerOps(Protocol):
    """One way to compute them. All round to the model's dtype where `TorchLayerOps` does."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """RMS norm. x: [..., hidden]; weight: [hidden]."""

    def add_norm(self, x: Tensor, branch: Tensor, scale: float, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """The residual sum x + branch * scale, and its norm. # [..., hidden] each"""

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """silu of the first half times the second: [..., 2 * ffn] -> [..., ffn]."""


class TorchLayerOps:
    """The reference, for every device."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Variance and scaling in fp32, rounded to the model dtype, then the weight."""
        variance = x.float().pow(2).mean(dim=-1, keepdim=True)
        return (x * torch.rsqrt(variance + eps)).to(x.dtype) * weight

    def add_norm(self, x: Tensor, branch: Tensor, scale: float, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        x = x + branch if scale == 1.0 else x + branch * scale
        return x, self.norm(x, weight, eps)

    def swiglu(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up
