"""What a stack of transformer blocks holds and works on, as kernels know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.kernels.rope import Rotation


@dataclass(frozen=True)
class LayerWeights:
    """One transformer block, with q, k, v and gate, up merged so that each is one product."""

    input_norm: Tensor  # [hidden]
    qkv: Linear  # [q + 2 kv, hidden]
    o: Linear  # [hidden, q]
    post_norm: Tensor  # [hidden]
    gate_up: Linear  # [2 ffn, hidden]
    down: Linear  # [hidden, ffn]

    @property
    def products(self) -> tuple[Linear, Linear, Linear, Linear]:
        return self.qkv, self.o, self.gate_up, self.down


@dataclass(frozen=True)
class StackWeights:
    """All blocks and the norm after them."""

    config: TransformerConfig
    layers: list[LayerWeights]
    norm: Tensor  # [hidden]


class LayerPages(NamedTuple):
    """A stack's own part of the paged cache, and where the rows at hand lie in it."""

    pages: Tensor  # [layers, 2, num_pages, page_size, kv_heads, head_dim]
    context: PagedContext


class FusedStack(Protocol):
    """A whole stack as one kernel."""

    def __call__(
        self, x: Tensor, rotation: Rotation | None, cache: LayerPages | None, kept: slice
    ) -> Tensor | None:
        """x: [B, T, hidden] -> the tokens `kept` [B, T', hidden], after the final norm; x stays as it is.

        cache: None where tokens attend to those of their sequence. Returns None where blocks one by one are to be run:
        they are the faster ones then, or this kernel knows not all that is asked of it.
        """
