"""Solving by graphs of single Euler steps: any number of them, and no graph is ever captured for a caller's number.

Two graphs a batch size. Which evaluation comes next stands on the device, so that a solve is nothing but launches.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from voxcpm_core.model.dit import Given
from voxcpm_core.runner.decode import DecodeStep
from voxcpm_core.runner.replay import Replay
from voxcpm_core.runner.slot_numbers import SlotNumbers
from voxcpm_core.runner.variants import Variants


class EvaluationGraphs:
    """Shares its slot numbers with the graphs of whole solves."""

    def __init__(self, step: DecodeStep, slots: SlotNumbers, max_size: int, max_steps: int, pool: Any) -> None:
        """`max_steps`: the most Euler steps that a patch may take."""
        config, device, dtype = step.model.config, step.model.device, step.model.dtype
        self._step = step
        self._slots = slots
        self._pool = pool
        self._recorded: Variants[tuple[Replay[None], Replay[None]]] = Variants(step.model)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device, dtype=dtype)

        hidden_size = config.dit.hidden_size
        # Of the batch that is being solved, since what a graph gives out the next one may overwrite.
        self._given = Given(zeros(max_size, config.mu_size), zeros(max_size, config.patch_size, hidden_size))
        self._time_tokens, self._steps = zeros(max_steps, hidden_size), zeros(max_steps)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)
        self._schedule = 0  # the number of Euler steps whose constants stand above

    def capture(self, size: int) -> None:
        self._graphs(size)

    def solve(self, size: int, num_steps: int) -> None:
        """Make the next patches of the batch whose slot numbers are set."""
        begin, evaluate = self._graphs(size)
        evaluations, time_tokens = self._step.model.dit.schedule(num_steps)
        if self._schedule != num_steps and evaluations:
            self._time_tokens[: len(evaluations)].copy_(time_tokens)
            self._steps[: len(evaluations)].copy_(torch.stack([evaluation.step for evaluation in evaluations]))
            self._schedule = num_steps
        begin.launch()
        for _ in evaluations:
            evaluate.launch()

    def _graphs(self, size: int) -> tuple[Replay[None], Replay[None]]:
        def record() -> tuple[Replay[None], Replay[None]]:
            slots = self._slots.nobody(size)
            given = Given(*(tensor[:size] for tensor in self._given))
            begin = Replay(lambda: self._start(slots, given), self._pool)
            return begin, Replay(lambda: self._advance(slots, given), self._pool)

        return self._recorded.get(size, record)

    def _start(self, slots: Tensor, given: Given) -> None:
        for static, made in zip(given, self._step.begin(slots), strict=True):
            static.copy_(made)
        self._next.zero_()

    def _advance(self, slots: Tensor, given: Given) -> None:
        time_token = self._time_tokens.index_select(0, self._next)[0]
        step = self._steps.index_select(0, self._next)[0]
        self._step.evaluate(slots, given, time_token, step)
        self._next += 1
