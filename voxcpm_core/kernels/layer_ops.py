"""What a stack's blocks are made of, attention and matrix products with all that goes with them, and what the DiT has
around its blocks. In torch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.paged_attention import PagedAttention, PagedContext, paged_attention, write_pages
from voxcpm_core.kernels.rope import Rotation, rotated_heads

ALL_TOKENS = slice(None)


class LayerOps(Protocol):
    """One way to compute them. Products may round less often than `TorchLayerOps`; all else rounds where it does."""

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """RMS norm. x: [..., hidden]; weight: [hidden]."""

    def folded(self, weight: Tensor, norm_weight: Tensor) -> Tensor:
        """As what a product behind a norm of that weight [in] must be given its own weight [out, in]; an adapter its A.
        """

    def norm_swiglu(self, x: Tensor, norm: Norm, gate_up: Linear) -> Tensor:
        """Of the product with the RMS norm of x, silu of the first half times the second: [..., hidden] -> [..., ffn].

        gate_up: its weight is `folded`.
        """

    def linear_add(self, branch: Tensor, linear: Linear, x: Tensor, scale: float, in_place: bool) -> Tensor:
        """The residual sum x + linear(branch) * scale: [..., in], [..., hidden] -> [..., hidden].

        `in_place`: nobody else needs x any more, and the sum may be written over it.
        """

    def local_attention(
        self, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig, rotation: Rotation | None, kept: slice
    ) -> tuple[Tensor, Tensor]:
        """The tokens `kept` attend to all of their sequence, by the product with its RMS norm: x [N, T, hidden] ->
        [N, T', q], and x of these tokens [N, T', hidden]. Both are contiguous.

        qkv: its weight [q + 2 kv, hidden] is `folded`.
        """

    def paged_attention(
        self, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig, rotation: Rotation | None, pages: Tensor,
        context: PagedContext,
    ) -> Tensor:
        """Each token attends to all of the cache up to its own position, once its key and value are there: [B, T, q].

        pages: [2, num_pages, page_size, kv_heads, head_dim], keys and values of one layer.
        """

    def dit_tokens(
        self, x: Tensor, in_proj: Linear, mu: Tensor, mu_tokens: int, time_token: Tensor, cond: Tensor
    ) -> Tensor:
        """What the DiT's blocks begin with, for guidance twice: rows 0..B-1 with mu, B..2B-1 with mu = 0.

        x: [B, P, C]; mu: [B, mu_size], that many tokens before the time's, or added to it where `mu_tokens` is 0;
        time_token: [hidden]; cond: [B, P, hidden], which comes before in_proj(x). Returns [2B, tokens, hidden].
        """

    def guided_step(
        self, x: Tensor, hidden: Tensor, norm: Norm, out_proj: Linear, cfg_value: Tensor, step: Tensor
    ) -> Tensor:
        """An Euler step with classifier-free guidance of optimised scale (CFG-zero-star).

        x: [B, P, C]; hidden: [2B, P, hidden], with the condition and without, of whose RMS norm `out_proj`, with its
        weight `folded`, makes the velocity; cfg_value: float32 [B]; step: []. Returns [B, P, C].
        """

    def apart(self) -> AbstractContextManager[None]:
        """What is computed inside, and graphs captured there, may run on the device beside what is computed outside."""


def attend_locally(qkv: Tensor, config: TransformerConfig, rotation: Rotation | None) -> Tensor:
    """`local_attention` from the product on: [N, T, q + 2 kv] -> [N, T, q]."""
    q, k, v = (part.transpose(1, 2) for part in rotated_heads(qkv, config, rotation))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(-2)


def store_and_attend(
    qkv: Tensor, config: TransformerConfig, rotation: Rotation | None, pages: Tensor, context: PagedContext,
    attention: PagedAttention,
) -> Tensor:
    """`paged_attention` from the product on: [B, T, q + 2 kv] -> [B, T, q]."""
    q, k, v = rotated_heads(qkv, config, rotation)
    write_pages(pages[0], k, context)
    write_pages(pages[1], v, context)
    return attention(q, pages[0], pages[1], context).flatten(-2)


class TorchLayerOps:
    """The reference, for every device."""

    def __init__(self, attention: PagedAttention = paged_attention) -> None:
        self._attention = attention

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Variance and scaling in fp32, rounded to the model dtype, then the weight."""
        variance = x.float().pow(2).mean(dim=-1, keepdim=True)
        return (x * torch.rsqrt(variance + eps)).to(x.dtype) * weight

    def folded(self, weight: Tensor, norm_weight: Tensor) -> Tensor:
        return weight

    def norm_swiglu(self, x: Tensor, norm: Norm, gate_up: Linear) -> Tensor:
        gate, up = gate_up(self.norm(x, *norm)).chunk(2, dim=-1)
        return F.silu(gate) * up

    def linear_add(self, branch: Tensor, linear: Linear, x: Tensor, scale: float, in_place: bool) -> Tensor:
        """Never in place: training needs x for its gradients."""
        return x + linear(branch) if scale == 1.0 else x + linear(branch) * scale

    def local_attention(
        self, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig, rotation: Rotation | None, kept: slice
    ) -> tuple[Tensor, Tensor]:
        attended = attend_locally(qkv(self.norm(x, *norm)), config, rotation)
        return attended[:, kept].contiguous(), x[:, kept].contiguous()  # gaps would change the order of sums

    def paged_attention(
        self, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig, rotation: Rotation | None, pages: Tensor,
        context: PagedContext,
    ) -> Tensor:
        return store_and_attend(qkv(self.norm(x, *norm)), config, rotation, pages, context, self._attention)

    def dit_tokens(
        self, x: Tensor, in_proj: Linear, mu: Tensor, mu_tokens: int, time_token: Tensor, cond: Tensor
    ) -> Tensor:
        mu = torch.cat((mu, torch.zeros_like(mu)))
        if mu_tokens:
            head = torch.cat((mu.unflatten(-1, (mu_tokens, -1)), time_token.expand(mu.shape[0], 1, -1)), dim=1)
        else:
            head = (mu + time_token).unsqueeze(1)
        return torch.cat((head, torch.cat((cond, in_proj(x)), dim=1).repeat(2, 1, 1)), dim=1)

    def guided_step(
        self, x: Tensor, hidden: Tensor, norm: Norm, out_proj: Linear, cfg_value: Tensor, step: Tensor
    ) -> Tensor:
        velocity = out_proj(self.norm(hidden, *norm))
        positive, negative = velocity.chunk(2)
        flat_positive, flat_negative = positive.flatten(1), negative.flatten(1)
        dot = (flat_positive * flat_negative).sum(dim=1)
        scale = (dot / ((flat_negative**2).sum(dim=1) + 1e-8)).view(-1, 1, 1)
        scaled = negative * scale
        # cfg stays fp32: rounding it to bf16 would move values such as 1.7.
        guidance = (cfg_value.view(-1, 1, 1) * (positive - scaled)).to(velocity.dtype)
        return x - step * (scaled + guidance)

    def apart(self) -> AbstractContextManager[None]:
        return nullcontext()
