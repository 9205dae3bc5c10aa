"""LongRoPE tables."""

from __future__ import annotations

import torch
from torch import Tensor

from voxcpm_core.config import RopeConfig


class RopeTable:
    """cos and sin for every position, made in fp32 and rounded to the model dtype as training did."""

    def __init__(self, config: RopeConfig, num_positions: int, device: torch.device, dtype: torch.dtype) -> None:
        half = len(config.factors)
        factors = torch.tensor(config.factors, dtype=torch.float32, device=device)
        exponents = torch.arange(0, 2 * half, 2, dtype=torch.float32, device=device) / (2 * half)
        positions = torch.arange(num_positions, dtype=torch.float32, device=device)
        angles = torch.outer(positions, 1.0 / factors) * (1.0 / config.theta**exponents)  # [positions, half]
        angles = torch.cat((angles, angles), dim=-1)
        self.cos = (angles.cos() * config.scale).to(dtype)  # [positions, head_dim]
        self.sin = (angles.sin() * config.scale).to(dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin at int64 positions [...], shaped [..., 1, head_dim] to broadcast over heads."""
        return self.cos[positions].unsqueeze(-2), self.sin[positions].unsqueeze(-2)
