"""Batches filled up with nobody's slot, as CUDA graphs have them, give what batches of exactly the rows give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tests.engine.harness import Harness
from voxcpm_core.runner.decode import DecodeStep, StepOutputs
from voxcpm_core.runner.graphs import batch_sizes
from voxcpm_core.types import SamplingParams, SpeechRequest


class FilledStepper:
    """What a GraphStepper launches, without the graphs."""

    def __init__(self, step: DecodeStep, nobody: int, size: int) -> None:
        self._step, self._nobody, self._size = step, nobody, size

    def _filled(self, slots: Sequence[int]) -> torch.Tensor:
        return torch.tensor([*slots, *[self._nobody] * (self._size - len(slots))])

    def solve(self, slots: Sequence[int], num_steps: int) -> None:
        self._step.solve(self._filled(slots), num_steps)

    def finish(self, slots: Sequence[int], heard: Sequence[int], max_context: int) -> StepOutputs:
        outputs = self._step.finish(self._filled(slots), None, max_context)
        return StepOutputs(*(output[: len(slots)] for output in outputs))


def requests() -> list[SpeechRequest]:
    """Of different lengths and numbers of Euler steps; one is not heard."""
    return [
        SpeechRequest(
            target_text="hello the world"[: 5 + 3 * i],
            params=SamplingParams(seed=i, inference_timesteps=4 + i % 2, min_length=3 + i, max_length=3 + i),
            wants_audio=i != 2,
        )
        for i in range(4)
    ]


def test_filling_up_changes_nothing_and_nobodys_slot_never_runs_out(tiny_checkpoints):
    folder = tiny_checkpoints["2"]
    received = []
    for filled in (False, True):
        harness = Harness(folder)
        if filled:
            runner = harness.core.runner
            runner._stepper = FilledStepper(runner.decode_step, nobody=harness.config.max_running, size=7)
        streams = [harness.add(request) for request in requests()]
        harness.drain()
        received.append(streams)
    for exact, padded in zip(*received, strict=True):
        assert exact.finish_reason == padded.finish_reason
        np.testing.assert_allclose(padded.latents, exact.latents, atol=1e-5)
        if exact.patches[0].audio is None:
            assert padded.patches[0].audio is None
        else:
            np.testing.assert_allclose(padded.audio, exact.audio, atol=1e-5)


def test_few_rows_are_filled_up():
    for max_running in (1, 3, 16, 17, 64, 100, 256):
        sizes = batch_sizes(max_running)
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == max_running
        for num_rows in range(1, max_running + 1):
            size = min(size for size in sizes if size >= num_rows)
            assert size - num_rows <= max(1, num_rows / 8)
