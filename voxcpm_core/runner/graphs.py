"""Decode steps as CUDA graphs, three of them, for batches filled up to a few sizes.

A batch is filled up with a slot of its own that belongs to nobody. Solving, feeding back and making audio are separate
graphs: streams with other numbers of Euler steps share the latter two, and audio is made on a stream of its own, beside
the language models and the next step's solve, where it takes what they leave idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import torch

from voxcpm_core.runner.decode import DecodeStep, StepOutputs
from voxcpm_core.runner.evaluations import EvaluationGraphs
from voxcpm_core.runner.replay import Replay
from voxcpm_core.runner.sizes import batch_sizes
from voxcpm_core.runner.slot_numbers import SlotNumbers
from voxcpm_core.runner.variants import Variants

MIN_STEPS = 2  # of which one is evaluated


class GraphStepper:
    """Graphs of all batch sizes. One number of Euler steps has solves that are one launch, the others one for each."""

    def __init__(
        self, step: DecodeStep, max_running: int, num_steps: int, max_steps: int, nobody: int
    ) -> None:
        """`num_steps`: Euler steps of a patch whose solve is one launch; `max_steps`: the most that one may take.

        `nobody`: the number of the slot that fills batches up.
        """
        config, device = step.model.config, step.model.device
        self.sizes = batch_sizes(max_running)
        self._step = step
        self._solving = SlotNumbers(max_running, nobody, device)
        self._finishing = SlotNumbers(max_running, nobody, device)
        self._num_steps = num_steps
        self._solves: Variants[Replay[None]] = Variants(step.model)
        # Audio has memory of its own, since it is made beside all others.
        self.pool, self._audio_pool = torch.cuda.graph_pool_handle(), torch.cuda.graph_pool_handle()
        self._evaluations = EvaluationGraphs(step, self._solving, max_running, max_steps, self.pool)
        self._feed_backs: Variants[Replay[None]] = Variants(step.model)
        self._audios: dict[int, Replay[None]] = {}
        self.beside = torch.cuda.Stream(device) if device.type == "cuda" else None
        # Outside the pools, where the next solve would overwrite them while they are copied to the host.
        self._outputs = StepOutputs(
            torch.zeros(max_running, config.patch_size, config.feat_dim, device=device),
            torch.zeros(max_running, dtype=torch.bool, device=device),
            torch.zeros(max_running, config.samples_per_patch, device=device),
        )

    def capture(self, size: int) -> None:
        """All graphs of a size, each launched once on nobody: the first launch of a graph takes longer than others."""
        replays = self._whole(size), self._feed_back(size), self._audio(size)
        self._evaluations.capture(size)
        for slots in (self._solving, self._finishing):
            slots.set((), size)
        for replay in replays:
            replay.launch()
        self._evaluations.solve(size, MIN_STEPS)

    def solve(self, slots: Sequence[int], num_steps: int) -> None:
        size = self._size(len(slots))
        if num_steps == self._num_steps:
            replay = self._whole(size)
            self._solving.set(slots, size)
            replay.launch()
        else:
            self._evaluations.capture(size)
            self._solving.set(slots, size)
            self._evaluations.solve(size, num_steps)

    def finish(self, slots: Sequence[int], heard: Sequence[int], max_context: int) -> StepOutputs:
        self.join()  # the audio of the step before reads what is set and captured here
        size = self._size(len(slots))
        feed_back, audio = self._feed_back(size), self._audio(size)
        self._finishing.set(slots, size)
        self._outputs.patches[:size].copy_(self._step.patches(self._finishing.of(size)))
        if self.beside is not None:
            self.beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.beside):
            audio.launch()
        feed_back.launch()
        return StepOutputs(*(output[: len(slots)] for output in self._outputs))

    def join(self) -> None:
        """Let the current stream's further work wait for the audio that is made beside."""
        if self.beside is not None:
            torch.cuda.current_stream().wait_stream(self.beside)

    def _size(self, num_rows: int) -> int:
        return self.sizes[bisect_left(self.sizes, num_rows)]

    def _whole(self, size: int) -> Replay[None]:
        def record() -> Replay[None]:
            slots = self._solving.nobody(size)
            return Replay(lambda: self._step.solve(slots, self._num_steps), self.pool)

        return self._solves.get(size, record)

    def _feed_back(self, size: int) -> Replay[None]:
        def record() -> Replay[None]:
            slots = self._finishing.nobody(size)

            def work() -> None:
                stop = self._step.feed_back(slots, self._step.patches(slots), self._step.most_context)
                self._outputs.stop[:size].copy_(stop)

            return Replay(work, self.pool)

        return self._feed_backs.get(size, record)

    def _audio(self, size: int) -> Replay[None]:
        if size not in self._audios:
            slots, patches = self._finishing.nobody(size), self._outputs.patches[:size]

            def work() -> None:
                self._outputs.audio[:size].copy_(self._step.decode_audio(slots, patches))

            self._audios[size] = Replay(work, self._audio_pool, yields=True)
        return self._audios[size]
