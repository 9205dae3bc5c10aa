"""Low-rank adapters of a matrix product, one for each sequence of a batch or none: the holder, and the sum in torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Norm(NamedTuple):
    """The RMS norm that stands before a product."""

    weight: Tensor  # [in]
    eps: float


@dataclass
class Selection:
    """Which adapter each sequence of the batch at hand has: whoever runs a batch sets it for as long as it runs."""

    rows: Tensor | None = None  # int64 [B], slots, -1 for none; batches of n * B repeat it. None: nobody has any
    derived: dict[Hashable, Any] = field(default_factory=dict)  # what kernels made of these rows

    def select(self, rows: Tensor | None) -> None:
        self.rows = rows
        self.derived.clear()


@dataclass(frozen=True)
class LoraStack:
    """The adapters of one `Linear`, slot by slot. Several merged layers have an A each, and share B's rows out.

    Behind a norm, A is folded as the product's own weight is (`LayerOps.folded`).
    """

    a: Tensor  # [slots, layers * rank, in], contiguous but for its first dimension
    b: Tensor  # [slots, out, rank], likewise; alpha / rank is part of it
    nums_out: tuple[int, ...]  # of each layer
    selection: Selection
    kernel: LoraKernel

    @property
    def rank(self) -> int:
        return self.b.shape[-1]

    def add(self, y: Tensor, x: Tensor, scale: float = 1.0, eps: float | None = None) -> Tensor:
        """y + scale * B A x for each sequence that has an adapter.

        y: [N, ..., out], contiguous, may be written over and returned; x: [N, ..., in]. `eps`: of an RMS norm of x that
        has yet to be taken; its weight is part of A.
        """
        rows = self.selection.rows
        return y if rows is None else self.kernel.add(self, rows, y, x, scale, eps)

    def add_gated(self, y: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
        """silu of the first half of `add` times the second: [N, ..., out] -> [N, ..., out / 2]."""
        assert self.selection.rows is not None  # else nothing is to be added
        return self.kernel.add_gated(self, self.selection.rows, y, x, eps)


class LoraKernel(NamedTuple):
    """Both of a `LoraStack`'s sums, with the rows selected."""

    add: Callable[[LoraStack, Tensor, Tensor, Tensor, float, float | None], Tensor]
    add_gated: Callable[[LoraStack, Tensor, Tensor, Tensor, float | None], Tensor]


def _add(stack: LoraStack, rows: Tensor, y: Tensor, x: Tensor, scale: float, eps: float | None) -> Tensor:
    """Sums of one sequence do not depend on the others."""
    if rows.device.type == "cpu" and not bool((rows >= 0).any()):  # elsewhere to ask would be to wait
        return y
    index = rows.repeat(x.shape[0] // len(rows))  # [N]
    has_adapter = (index >= 0).view(-1, 1, 1)
    slots = index.clamp(min=0)
    flat = x.reshape(x.shape[0], -1, x.shape[-1])  # [N, T, in]
    if eps is not None:
        flat = (flat * torch.rsqrt(flat.float().pow(2).mean(dim=-1, keepdim=True) + eps)).to(x.dtype)
    shrunk = torch.bmm(flat, stack.a[slots].transpose(1, 2)).split(stack.rank, dim=-1)
    parts = stack.b[slots].split(stack.nums_out, dim=1)
    expanded = [torch.bmm(h, b.transpose(1, 2)) for h, b in zip(shrunk, parts, strict=True)]
    update = torch.where(has_adapter, torch.cat(expanded, dim=-1) * scale, 0.0)
    return y + update.view(y.shape)


def _add_gated(stack: LoraStack, rows: Tensor, y: Tensor, x: Tensor, eps: float | None) -> Tensor:
    gate, up = _add(stack, rows, y, x, 1.0, eps).chunk(2, dim=-1)
    return F.silu(gate) * up


torch_lora = LoraKernel(_add, _add_gated)  # the reference
