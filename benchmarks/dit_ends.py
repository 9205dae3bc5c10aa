"""Random inputs of what stands around the DiT's blocks: its tokens before, norm, product and guided step behind."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.products.timing import EPS
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.layer_ops import LayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm


class DitEnds(NamedTuple):
    """What stands before and behind the DiT's blocks, for some streams."""

    x: Tensor  # [B, P, C]
    mu: Tensor  # [B, mu_size]
    cond: Tensor  # [B, P, hidden]
    time_token: Tensor  # [hidden]
    hidden: Tensor  # [2B, P, hidden]
    in_proj: Linear
    out_proj: Linear
    norm: Norm
    cfg_value: Tensor  # float32 [B]
    step: Tensor  # []
    mu_tokens: int

    @classmethod
    def random(cls, config: ModelConfig, batch: int, device: torch.device, dtype: torch.dtype) -> DitEnds:
        patch_size, features, width = config.patch_size, config.feat_dim, config.dit.hidden_size

        def randn(*shape: int) -> Tensor:
            return torch.randn(*shape, device=device, dtype=dtype)

        return cls(
            randn(batch, patch_size, features), randn(batch, config.mu_size), randn(batch, patch_size, width),
            randn(width), randn(2 * batch, patch_size, width),
            Linear(randn(width, features) * features**-0.5, randn(width)),
            Linear(randn(features, width) * width**-0.5, randn(features)),
            Norm(torch.ones(width, device=device, dtype=dtype), EPS),  # its weight is part of the product's
            torch.full((batch,), 2.0, device=device), torch.tensor(0.1, device=device, dtype=dtype), config.mu_tokens,
        )  # fmt: skip

    def of(self, row: int) -> DitEnds:
        """Those of one stream alone."""
        one = slice(row, row + 1)
        hidden = self.hidden[row :: len(self.x)].contiguous()
        return self._replace(
            x=self.x[one], mu=self.mu[one], cond=self.cond[one], hidden=hidden, cfg_value=self.cfg_value[one]
        )

    def tokens(self, ops: LayerOps) -> Tensor:
        return ops.dit_tokens(self.x, self.in_proj, self.mu, self.mu_tokens, self.time_token, self.cond)

    def stepped(self, ops: LayerOps) -> Tensor:
        return ops.guided_step(self.x, self.hidden, self.norm, self.out_proj, self.cfg_value, self.step)
