"""The prefixes of newcomers as CUDA graphs of a few shapes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.kernels.layer_ops import LayerOps
from voxcpm_core.lora.pool import NO_SLOT
from voxcpm_core.runner.newcomers import Ids, RowLayout
from voxcpm_core.runner.prefill_step import EagerPrefill, PrefillStep, Prefix
from voxcpm_core.runner.replay import Replay
from voxcpm_core.runner.sizes import MAX_PREFILL_CELLS, PATCH_COUNTS, PrefillBatch, PrefillShape, PrefillShapes
from voxcpm_core.runner.upload import upload_into
from voxcpm_core.runner.variants import Variants
from voxcpm_core.scheduler import Stream


class PrefillGraphs:
    """One graph a shape over shared inputs; longer prefixes run without one. Graphs may run beside steps, not beside
    each other, so all that they write is theirs alone, but for what is nobody's."""

    def __init__(self, step: PrefillStep, layout: RowLayout, shapes: PrefillShapes, layer_ops: LayerOps) -> None:
        """`layer_ops`: those of the model."""
        model = step.model
        self._layer_ops = layer_ops
        self.shapes = shapes
        self._step = step
        self._layout = layout
        self._eager = EagerPrefill(step, layout)
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: Variants[Replay[None]] = Variants(model)
        largest = max(rows * layout.width(positions) for rows, positions in shapes.all)
        self._rows = torch.zeros(largest, dtype=torch.int64, device=model.device)
        hidden_size = model.config.base_lm.hidden_size
        # Zero between two runs: text alone does not touch it.
        self._audio = torch.zeros(MAX_PREFILL_CELLS, hidden_size, device=model.device, dtype=model.dtype)

    def can_run_beside(self, num_positions: int) -> bool:
        return self.shapes.has_graph(num_positions)

    def embed(self, patches: Tensor) -> Tensor:
        """Without a graph, but for a few sizes alone: kernels are chosen and compiled by size."""
        return torch.cat([self._embed(chunk) for chunk in patches.split(PATCH_COUNTS[-1])])

    def batches(self, lengths: Sequence[int]) -> list[PrefillBatch]:
        return self.shapes.batches(lengths)

    def run(self, prefixes: Sequence[Prefix], batch: PrefillBatch) -> None:
        if not batch.has_graph:
            self._eager.run(prefixes, batch)
            return
        shape = batch.shape
        graph = self._graph(shape)
        self._set([(prefix.stream, prefix.ids) for prefix in prefixes], shape)
        audio = self._audio_of(shape)
        with_audio = [(row, prefix) for row, prefix in zip(audio, prefixes, strict=False) if prefix.embedded]
        try:
            for row, prefix in with_audio:
                prefix.place(row)
            graph.launch()
        finally:
            if with_audio:
                audio.zero_()

    def capture(self, shape: PrefillShape) -> None:
        """Launched once, on nobody: the first launch of a graph takes longer than others."""
        graph = self._graph(shape)
        self._set([], shape)
        graph.launch()

    def warm_up(self) -> None:
        """Compile what runs without a graph."""
        model = self._step.model
        with model.adapted_by(NO_SLOT):
            for num_patches in PATCH_COUNTS:
                self._embed(self._audio.new_zeros(num_patches, model.config.patch_size, model.config.feat_dim))
        if self.shapes.shortest_eager is not None:
            self._eager.run((), PrefillBatch((), PrefillShape(1, self.shapes.shortest_eager), has_graph=False))

    def _embed(self, patches: Tensor) -> Tensor:
        missing = PATCH_COUNTS[bisect_left(PATCH_COUNTS, len(patches))] - len(patches)
        return self._step.model.local_encoder(F.pad(patches, (0, 0, 0, 0, 0, missing)))[: len(patches)]

    def _graph(self, shape: PrefillShape) -> Replay[None]:
        def record() -> Replay[None]:
            rows, audio = self._set([], shape), self._audio_of(shape)
            most_context = self._step.max_positions  # whatever is known of a prefix, the graph is the same

            def work() -> None:
                with self._layer_ops.apart():
                    self._step(self._layout.cut(rows), audio, most_context)

            return Replay(work, self._pool, yields=True)

        return self._graphs.get(shape, record)

    def _set(self, newcomers: Sequence[tuple[Stream, Ids]], shape: PrefillShape) -> Tensor:
        """The static rows of a shape, holding these newcomers and nobody. # int64 [rows, width]"""
        packed = self._layout.pack(newcomers, *shape)
        rows = self._rows[: packed.size].view(packed.shape)
        upload_into(rows, packed)
        return rows

    def _audio_of(self, shape: PrefillShape) -> Tensor:
        return self._audio[: shape.rows * shape.positions].unflatten(0, tuple(shape))
