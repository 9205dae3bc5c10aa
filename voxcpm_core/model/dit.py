"""The local diffusion transformer and its flow-matching solver: conditioning and noise become a patch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.model.schedule import Evaluation, TimeEmbedding, evaluations
from voxcpm_core.model.transformer import LocalAttention, Transformer
from voxcpm_core.model.weights import WeightSource

PREFIX = "feat_decoder.estimator"


class Given(NamedTuple):
    """Conditions of a patch."""

    mu: Tensor  # [B, mu_size]
    cond: Tensor  # [B, P, hidden]


class LocalDiT:
    """Velocity network plus Euler solver with classifier-free guidance (CFG-zero-star)."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        self._patch_size = config.patch_size
        self._mu_tokens = config.mu_tokens
        self._in_proj = source.linear(f"{PREFIX}.in_proj")
        self._cond_proj = source.linear(f"{PREFIX}.cond_proj")
        self._time_embedding = TimeEmbedding(source, PREFIX, config.dit.hidden_size)
        num_tokens = config.mu_tokens + 1 + 2 * config.patch_size
        self.stack = Transformer.load(config.dit, source, f"{PREFIX}.decoder", num_tokens)
        self._norm = Norm(self.stack.norm, config.dit.norm_eps)
        self._out_proj = source.linear(f"{PREFIX}.out_proj", norm_weight=self.stack.norm)
        self._attention = LocalAttention(num_tokens, source.device)
        self._schedules: dict[int, tuple[list[Evaluation], Tensor]] = {}
        self._device, self._dtype, self._ops = source.device, source.dtype, source.ops

    def schedule(self, num_steps: int) -> tuple[list[Evaluation], Tensor]:
        """The evaluations of `num_steps` Euler steps and their time tokens [n, hidden], made once."""
        if num_steps not in self._schedules:
            steps = evaluations(num_steps, self._device, self._dtype)
            times = torch.stack([e.time for e in steps]) if steps else torch.zeros(0, device=self._device)
            self._schedules[num_steps] = steps, self._time_embedding(times.to(self._dtype))
        return self._schedules[num_steps]

    def num_evaluations(self, num_steps: int) -> int:
        """How often so many Euler steps evaluate the velocity."""
        return len(self.schedule(num_steps)[0])

    def solve(self, noise: Tensor, mu: Tensor, previous_patch: Tensor, cfg_value: Tensor, num_steps: int) -> Tensor:
        """Integrate from noise to a patch.

        noise: [B, P, C], already scaled by the temperature; mu: [B, mu_size]; previous_patch: [B, P, C];
        cfg_value: float32 [B]. Returns [B, P, C]. One step returns the noise itself.
        """
        schedule, time_tokens = self.schedule(num_steps)
        x, given = noise, self.given(mu, previous_patch)
        for evaluation, token in zip(schedule, time_tokens, strict=True):
            x = self.evaluate(x, given, cfg_value, token, evaluation.step)
        return x

    def given(self, mu: Tensor, previous_patch: Tensor) -> Given:
        """What all evaluations of a patch share. mu: [B, mu_size]; previous_patch: [B, P, C]."""
        return Given(mu, self._cond_proj(previous_patch))

    def evaluate(self, x: Tensor, given: Given, cfg_value: Tensor, time_token: Tensor, step: Tensor) -> Tensor:
        """One Euler step. x: [B, P, C]; cfg_value: float32 [B]; time_token: [hidden]; step: []. Returns [B, P, C]."""
        tokens = self._ops.dit_tokens(x, self._in_proj, given.mu, self._mu_tokens, time_token, given.cond)
        kept = slice(-self._patch_size, None)
        hidden = self.stack.blocks(tokens, self._attention, kept, writes_over=True)  # [2B, P, hidden]
        return self._ops.guided_step(x, hidden, self._norm, self._out_proj, cfg_value, step)
