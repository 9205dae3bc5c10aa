"""All CUDA graphs of an engine: decode steps of every batch size, prefixes of every shape."""

from __future__ import annotations

import gc
from typing import NamedTuple

import torch

from voxcpm_core.kernels.layer_ops import LayerOps
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.runner.decode import DecodeStep
from voxcpm_core.runner.graphs import GraphStepper
from voxcpm_core.runner.prefill_graphs import PrefillGraphs
from voxcpm_core.runner.prefill_step import PrefillStep
from voxcpm_core.runner.sizes import PrefillShape, PrefillShapes, RunnerSizes


class GraphSet:
    """Captures them. Nothing is captured later, when streams would wait for it."""

    def __init__(self, model: VoxCPMModel, stepper: GraphStepper, prefill: PrefillGraphs) -> None:
        self._model = model
        self.stepper = stepper
        self.prefill = prefill

    def capture(self) -> None:
        """The largest first: the smaller ones then fit into its memory."""
        gc.collect()
        gc.freeze()  # torch collects garbage before each capture, of which there are a hundred
        try:
            for _ in self._model.variants():
                for shape in sorted(self.prefill.shapes.all, key=_num_cells, reverse=True):
                    self.prefill.capture(shape)
                for size in reversed(self.stepper.sizes):
                    self.stepper.capture(size)
        finally:
            gc.unfreeze()
        for _ in self._model.variants():
            self.prefill.warm_up()

    def driver_bytes(self) -> int:
        """What the driver will take for all graphs, seen in a few; with them torch has taken what all of them share.

        The set is to be thrown away after that. The largest loads kernels, too, so the next ones are what is measured.
        """
        shapes, sizes = sorted(self.prefill.shapes.all, key=_num_cells), self.stepper.sizes
        self.prefill.capture(shapes[-1])
        self.stepper.capture(sizes[-1])
        before = _Used.now()
        self.prefill.capture(shapes[-min(2, len(shapes))])
        between = _Used.now()
        self.stepper.capture(sizes[-min(2, len(sizes))])
        after = _Used.now()
        one_of_each = between.by_driver_since(before) * len(shapes) + after.by_driver_since(between) * len(sizes)
        return one_of_each * len(list(self._model.variants()))


def _num_cells(shape: PrefillShape) -> int:
    return shape.rows * shape.positions


def make_graphs(decode: DecodeStep, prefill: PrefillStep, sizes: RunnerSizes, layer_ops: LayerOps) -> GraphSet:
    """Graphs of an engine. `layer_ops`: those of its model."""
    stepper = GraphStepper(decode, sizes.num_slots, sizes.num_steps, sizes.max_steps, sizes.num_slots)
    shapes = PrefillShapes(sizes.max_positions, sizes.num_slots)
    return GraphSet(decode.model, stepper, PrefillGraphs(prefill, sizes.row_layout, shapes, layer_ops))


class _Used(NamedTuple):
    """Bytes of the GPU that are taken, in all and by torch."""

    in_all: int
    by_torch: int

    @classmethod
    def now(cls) -> _Used:
        torch.cuda.synchronize()
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        return cls(total_bytes - free_bytes, torch.cuda.memory_reserved())

    def by_driver_since(self, earlier: _Used) -> int:
        return max(0, self.in_all - earlier.in_all - (self.by_torch - earlier.by_torch))
