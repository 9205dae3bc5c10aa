"""Decode steps as CUDA graphs, four of them, for batches filled up to a few sizes.

A batch is filled up with a slot of its own that belongs to nobody. Solving, gathering what was solved, feeding it back
and making audio of it are separate graphs: streams with other numbers of Euler steps share the latter three, and audio
is made on a stream of its own, beside the language models and the next step's solve, where it takes what they leave
idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.output_layout import OutputLayout
from voxcpm_core.runner.beside import Beside
from voxcpm_core.runner.decode import DecodeStep
from voxcpm_core.runner.evaluations import EvaluationGraphs
from voxcpm_core.runner.outputs import StepOutputs, step_outputs
from voxcpm_core.runner.replay import Replay
from voxcpm_core.runner.sizes import batch_sizes
from voxcpm_core.runner.slot_numbers import SlotNumbers
from voxcpm_core.runner.variants import Variants

MIN_STEPS = 2  # of which one is evaluated


class Finishing(NamedTuple):
    """What the graphs that follow the solve of a batch read and write."""

    slots: Tensor  # int64 [size]
    patches: Tensor  # [size, P, C] that were solved; the next solve writes elsewhere
    outputs: StepOutputs
    silent: StepOutputs  # the same memory where nobody hears anything


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
        self._gathers: dict[int, Replay[None]] = {}
        self._feed_backs: Variants[Replay[None]] = Variants(step.model)
        self._audios: dict[int, Replay[None]] = {}
        self.beside = Beside(device)
        # Outside the pools: audio is made, and outputs are copied to the host, while the next solve uses those.
        layout = OutputLayout.of(config)
        patches = torch.zeros(max_running, config.patch_size, config.feat_dim, device=device, dtype=step.model.dtype)
        outputs = torch.zeros(layout.num_bytes(max_running), dtype=torch.uint8, device=device)
        self._finishings = {
            size: Finishing(
                self._finishing.of(size), patches[:size],
                *(step_outputs(layout, outputs, size, with_audio) for with_audio in (True, False)),
            )
            for size in self.sizes
        }

    def capture(self, size: int) -> None:
        """All graphs of a size, each launched once on nobody: the first launch of a graph takes longer than others."""
        replays = self._whole(size), self._gather(size), self._feed_back(size), self._audio(size)
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
        gather, feed_back, audio = self._gather(size), self._feed_back(size), self._audio(size)
        finishing = self._finishings[size]
        self._finishing.set(slots, size)
        gather.launch()
        if heard:
            self.beside.follow()
            self.beside.launch(audio.launch)
        feed_back.launch()
        return finishing.outputs if heard else finishing.silent

    def join(self) -> None:
        """Let the engine's further work wait for the audio that is made beside."""
        self.beside.join()

    def _size(self, num_rows: int) -> int:
        return self.sizes[bisect_left(self.sizes, num_rows)]

    def _whole(self, size: int) -> Replay[None]:
        def record() -> Replay[None]:
            slots = self._solving.nobody(size)
            return Replay(lambda: self._step.solve(slots, self._num_steps), self.pool)

        return self._solves.get(size, record)

    def _gather(self, size: int) -> Replay[None]:
        if size not in self._gathers:
            slots, patches, _, _ = self._finishing_nobody(size)

            def work() -> None:
                self._step.patches(slots, out=patches)

            self._gathers[size] = Replay(work, self.pool)
        return self._gathers[size]

    def _feed_back(self, size: int) -> Replay[None]:
        def record() -> Replay[None]:
            slots, patches, outputs, _ = self._finishing_nobody(size)

            def work() -> None:
                outputs.patches.copy_(patches)
                outputs.stop.copy_(self._step.feed_back(slots, patches, self._step.most_context))

            return Replay(work, self.pool)

        return self._feed_backs.get(size, record)

    def _audio(self, size: int) -> Replay[None]:
        if size not in self._audios:
            slots, patches, outputs, _ = self._finishing_nobody(size)

            def work() -> None:
                outputs.audio.copy_(self._step.decode_audio(slots, patches))

            self._audios[size] = Replay(work, self._audio_pool, yields=True)
        return self._audios[size]

    def _finishing_nobody(self, size: int) -> Finishing:
        """For a capture, which runs for real."""
        self._finishing.set((), size)
        return self._finishings[size]
