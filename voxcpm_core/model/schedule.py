"""The flow-matching time schedule and the DiT's time tokens: constants of the number of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.model.weights import Linear, WeightSource

ZERO_STEP_RATIO = 0.04  # CFG-zero-star: this share of the steps (at least one) has velocity zero


@dataclass(frozen=True)
class Evaluation:
    """One velocity evaluation of the solver."""

    time: Tensor  # [] model dtype
    step: Tensor  # [] model dtype; x -= step * velocity


def evaluations(num_steps: int, device: torch.device, dtype: torch.dtype) -> list[Evaluation]:
    """The Euler steps that cost an evaluation, in order.

    Everything is computed in the model dtype, op by op, and time runs by subtraction: training rounded
    the same way, so in bf16 this is the model, not noise. Steps of velocity zero only move the time.
    """
    times = torch.linspace(1, 0, num_steps + 1, device=device, dtype=dtype)
    times = times + (torch.cos(torch.pi / 2 * times) - 1 + times)  # sway coefficient 1
    num_zero = max(1, int((num_steps + 1) * ZERO_STEP_RATIO))
    time, step = times[0], times[0] - times[1]
    result = []
    for k in range(1, num_steps + 1):
        if k > num_zero:
            result.append(Evaluation(time, step))
        time = time - step
        if k < num_steps:
            step = time - times[k + 1]
    return result


class TimeEmbedding:
    """Sinusoid and MLP of the time, plus the constant branch for a step width of zero."""

    def __init__(self, source: WeightSource, prefix: str, hidden_size: int) -> None:
        self._time = _mlp(source, f"{prefix}.time_mlp")
        self._delta = _mlp(source, f"{prefix}.delta_time_mlp")
        self._hidden_size = hidden_size

    def __call__(self, times: Tensor) -> Tensor:
        """times: [n] -> tokens [n, hidden]."""
        return self._embed(times, self._time) + self._embed(torch.zeros_like(times), self._delta)

    def _embed(self, times: Tensor, mlp: tuple[Linear, Linear]) -> Tensor:
        half = self._hidden_size // 2
        frequencies = torch.arange(half, device=times.device, dtype=times.dtype) * -(math.log(10000) / (half - 1))
        angles = 1000 * times.unsqueeze(1) * torch.exp(frequencies).unsqueeze(0)
        sinusoid = torch.cat((angles.sin(), angles.cos()), dim=-1)
        return mlp[1](F.silu(mlp[0](sinusoid)))


def _mlp(source: WeightSource, prefix: str) -> tuple[Linear, Linear]:
    return source.linear(f"{prefix}.linear_1"), source.linear(f"{prefix}.linear_2")
