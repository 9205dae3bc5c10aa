"""The weights of a matrix product with its adapters, and the product as torch computes it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.kernels.lora import LoraStack

# Below this many rows CPU libraries sum fp32 products in an order that depends on the number. Padding keeps
# a stream that runs alone equal to the same stream in a batch, as is promised for fp32.
MIN_CPU_ROWS = 16


@dataclass(frozen=True)
class Linear:
    """y = x W^T + b, plus what the adapter of each sequence adds."""

    weight: Tensor  # [out, in]
    bias: Tensor | None = None  # [out]
    lora: LoraStack | None = None  # of models that serve adapters

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., in] -> [..., out]; the first dimension goes by sequences where there are adapters."""
        y = self._product(x)
        return y if self.lora is None else self.lora.add(y, x)

    def _product(self, x: Tensor) -> Tensor:
        num_rows = x.shape[:-1].numel()
        if x.device.type != "cpu" or x.dtype != torch.float32 or not 0 < num_rows < MIN_CPU_ROWS:
            return F.linear(x, self.weight, self.bias)
        padded = F.pad(x.reshape(num_rows, -1), (0, 0, 0, MIN_CPU_ROWS - num_rows))
        return F.linear(padded, self.weight, self.bias)[:num_rows].unflatten(0, x.shape[:-1])
