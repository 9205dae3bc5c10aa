"""The local diffusion transformer and its flow-matching solver: conditioning and noise become a patch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.model.schedule import Evaluation, TimeEmbedding, evaluations
from voxcpm_core.model.transformer import LocalAttention, Transformer
from voxcpm_core.model.weights import WeightSource

PREFIX = "feat_decoder.estimator"


class Given(NamedTuple):
    """Conditions of a patch. Guidance runs as one batch: rows 0..B-1 with mu, B..2B-1 with mu = 0."""

    mu: Tensor  # [2B, mu_size]
    cond: Tensor  # [2B, P, hidden]


class LocalDiT:
    """Velocity network plus Euler solver with classifier-free guidance (CFG-zero-star)."""

    def __init__(self, config: ModelConfig, source: WeightSource) -> None:
        self._patch_size = config.patch_size
        self._mu_tokens = config.mu_tokens
        self._hidden_size = config.dit.hidden_size
        self._in_proj = source.linear(f"{PREFIX}.in_proj")
        self._cond_proj = source.linear(f"{PREFIX}.cond_proj")
        self._out_proj = source.linear(f"{PREFIX}.out_proj")
        self._time_embedding = TimeEmbedding(source, PREFIX, config.dit.hidden_size)
        num_tokens = config.mu_tokens + 1 + 2 * config.patch_size
        self.stack = Transformer.load(config.dit, source, f"{PREFIX}.decoder", num_tokens)
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
        return Given(torch.cat((mu, torch.zeros_like(mu))), self._cond_proj(previous_patch).repeat(2, 1, 1))

    def evaluate(self, x: Tensor, given: Given, cfg_value: Tensor, time_token: Tensor, step: Tensor) -> Tensor:
        """One Euler step. x: [B, P, C]; cfg_value: float32 [B]; time_token: [hidden]; step: []. Returns [B, P, C]."""
        velocity = self._velocity(x, given.mu, time_token, given.cond)
        return self._ops.guided_step(x, velocity, cfg_value, step)

    def _velocity(self, x: Tensor, mu: Tensor, time_token: Tensor, cond: Tensor) -> Tensor:
        """x: [B, P, C]; mu: [2B, mu_size]; time_token: [hidden]; cond: [2B, P, hidden] -> [2B, P, C]."""
        if self._mu_tokens:
            head = mu.unflatten(-1, (self._mu_tokens, self._hidden_size))
            head = torch.cat((head, time_token.expand(mu.shape[0], 1, -1)), dim=1)
        else:
            head = (mu + time_token).unsqueeze(1)
        tokens = torch.cat((head, cond, self._in_proj(x).repeat(2, 1, 1)), dim=1)  # [2B, tokens, hidden]
        return self._out_proj(self.stack(tokens, self._attention, kept=slice(-self._patch_size, None)))
