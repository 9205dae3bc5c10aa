"""The weights of a matrix product with its adapters, and the product as torch computes it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.kernels.fp8 import dequantised
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
    scales: Tensor | None = None  # float32 [out]: the weight is in float8, and its rows are to be multiplied by them

    def __call__(self, x: Tensor) -> Tensor:
        """x: [..., in] -> [..., out]; the first dimension goes by sequences where there are adapters."""
        y = self._product(x)
        return y if self.lora is None else self.lora.add(y, x)

    @property
    def adapters(self) -> LoraStack | None:
        """None where nobody in the batch at hand has any."""
        return None if self.lora is None or self.lora.selection.rows is None else self.lora

    def weight_in(self, dtype: torch.dtype) -> Tensor:
        """W [out, in] for a product of values of `dtype`; made for the occasion where it is kept in float8."""
        return self.weight if self.scales is None else dequantised(self.weight, self.scales, dtype)

    def _product(self, x: Tensor) -> Tensor:
        num_rows, weight = x.shape[:-1].numel(), self.weight_in(x.dtype)
        if x.device.type != "cpu" or x.dtype != torch.float32 or not 0 < num_rows < MIN_CPU_ROWS:
            return F.linear(x, weight, self.bias)
        padded = F.pad(x.reshape(num_rows, -1), (0, 0, 0, MIN_CPU_ROWS - num_rows))
        return F.linear(padded, weight, self.bias)[:num_rows].unflatten(0, x.shape[:-1])
