"""The prefix pass of newcomers on device tensors, alone or as CUDA graphs of a few shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import AUDIO_ROW, VoxCPMModel
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.newcomers import Ids, Newcomers, RowLayout
from voxcpm_core.runner.replay import Replay
from voxcpm_core.runner.sizes import MAX_PREFILL_CELLS, PrefillBatch, PrefillShape, PrefillShapes, filled_patches
from voxcpm_core.runner.upload import upload, upload_into
from voxcpm_core.scheduler import Stream, pages_for
from voxcpm_core.text.layout import PrefillLayout


class Prefix(NamedTuple):
    """A newcomer whose audio is encoded."""

    stream: Stream
    layout: PrefillLayout
    patches: Tensor  # [n, P, C] in model dtype, reference before prompt
    embedded: Tensor  # [n, hidden], the local encoder's embeddings

    @property
    def ids(self) -> Ids:
        """int64 [S], AUDIO_ROW where a patch stands."""
        ids = np.array(self.layout.ids)
        for places in (self.layout.reference, self.layout.prompt):
            ids[places.start : places.stop] = AUDIO_ROW
        return ids

    def place(self, audio: Tensor) -> None:
        """Write the embeddings into zeros [T, hidden], where their patches stand."""
        first = 0
        for places in (self.layout.reference, self.layout.prompt):
            audio[places.start : places.stop] = self.embedded[first : first + len(places)]
            first += len(places)


class PrefillStep:
    """Writes newcomers' rows and runs their prefixes; what conditions their first patches stays in their slots."""

    def __init__(self, model: VoxCPMModel, buffers: SlotBuffers, cache: KvCache) -> None:
        self.model = model
        self._buffers = buffers
        self._page_size = cache.page_size
        self._cache = cache

    def __call__(self, newcomers: Newcomers, audio: Tensor) -> None:
        """audio: [N, T, hidden], zero where there is none.

        Positions that fill a prefix up write keys that the stream's own patches replace before anybody reads them, or
        to nobody's page.
        """
        num_rows, num_positions = newcomers.token_ids.shape
        self._buffers.join(newcomers)
        context = PagedContext(
            page_table=newcomers.pages[:, : pages_for(num_positions, self._page_size)],
            positions=torch.arange(num_positions, device=audio.device).expand(num_rows, -1),
            max_context=num_positions,
            page_size=self._page_size,
        )
        last = newcomers.num_prefill - 1
        output = self.model.prefill(newcomers.token_ids, audio, last, self._cache, context)
        self._buffers.store_hidden(newcomers.slots, output.lm_hidden, output.res_hidden)


class PrefillRunner(Protocol):
    """Shares newcomers out into batches and runs them."""

    def embed(self, patches: Tensor) -> Tensor:
        """The local encoder: [n, P, C] -> [n, hidden]."""

    def batches(self, lengths: Sequence[int]) -> list[PrefillBatch]:
        """For prefixes of so many positions."""

    def run(self, prefixes: Sequence[Prefix], batch: PrefillBatch) -> Tensor:
        """Their slots on the device, int64 [N]."""


class EagerPrefill:
    """Each newcomer alone, in exactly the shape it has."""

    def __init__(self, step: PrefillStep, layout: RowLayout) -> None:
        self._step = step
        self._layout = layout

    def embed(self, patches: Tensor) -> Tensor:
        return self._step.model.local_encoder(patches)

    def batches(self, lengths: Sequence[int]) -> list[PrefillBatch]:
        return [PrefillBatch((i,), PrefillShape(1, length), has_graph=False) for i, length in enumerate(lengths)]

    def run(self, prefixes: Sequence[Prefix], batch: PrefillBatch) -> Tensor:
        model, shape = self._step.model, batch.shape
        packed = self._layout.pack([(prefix.stream, prefix.ids) for prefix in prefixes], *shape)
        newcomers = self._layout.cut(upload(packed, model.device))
        audio = torch.zeros(*shape, model.config.base_lm.hidden_size, device=model.device, dtype=model.dtype)
        for row, prefix in zip(audio, prefixes, strict=False):
            prefix.place(row)
        self._step(newcomers, audio)
        return newcomers.slots


class PrefillGraphs:
    """One graph a shape over shared inputs; longer prefixes run without one."""

    def __init__(self, step: PrefillStep, layout: RowLayout, shapes: PrefillShapes, pool: Any) -> None:
        """`pool`: memory shared with graphs that never run at the same time."""
        model = step.model
        self.shapes = shapes
        self._step = step
        self._layout = layout
        self._eager = EagerPrefill(step, layout)
        self._pool = pool
        self._graphs: dict[PrefillShape, Replay[None]] = {}
        largest = max(rows * layout.width(positions) for rows, positions in shapes.all)
        self._rows = torch.zeros(largest, dtype=torch.int64, device=model.device)
        hidden_size = model.config.base_lm.hidden_size
        # Zero between two runs: text alone does not touch it.
        self._audio = torch.zeros(MAX_PREFILL_CELLS, hidden_size, device=model.device, dtype=model.dtype)

    def embed(self, patches: Tensor) -> Tensor:
        """Without a graph, but for a few sizes alone: kernels are chosen and compiled by size."""
        filled = F.pad(patches, (0, 0, 0, 0, 0, filled_patches(len(patches)) - len(patches)))
        return self._step.model.local_encoder(filled)[: len(patches)]

    def batches(self, lengths: Sequence[int]) -> list[PrefillBatch]:
        return self.shapes.batches(lengths)

    def run(self, prefixes: Sequence[Prefix], batch: PrefillBatch) -> Tensor:
        if not batch.has_graph:
            return self._eager.run(prefixes, batch)
        shape = batch.shape
        graph = self._graph(shape)
        rows = self._set([(prefix.stream, prefix.ids) for prefix in prefixes], shape)
        audio = self._audio_of(shape)
        with_audio = [(row, prefix) for row, prefix in zip(audio, prefixes, strict=False) if len(prefix.patches)]
        try:
            for row, prefix in with_audio:
                prefix.place(row)
            graph.launch()
        finally:
            if with_audio:
                audio.zero_()
        return self._layout.cut(rows).slots

    def capture(self, shape: PrefillShape) -> None:
        """Launched once, on nobody: the first launch of a graph takes longer than others."""
        self._graph(shape).launch()

    def warm_up(self) -> None:
        """Compile what runs without a graph."""
        model = self._step.model
        for num_patches in self.shapes.patch_counts():
            self.embed(self._audio.new_zeros(num_patches, model.config.patch_size, model.config.feat_dim))
        if self.shapes.shortest_eager is not None:
            self._eager.run((), PrefillBatch((), PrefillShape(1, self.shapes.shortest_eager), has_graph=False))

    def _graph(self, shape: PrefillShape) -> Replay[None]:
        if shape not in self._graphs:
            rows, audio = self._set([], shape), self._audio_of(shape)
            self._graphs[shape] = Replay(lambda: self._step(self._layout.cut(rows), audio), self._pool)
        return self._graphs[shape]

    def _set(self, newcomers: Sequence[tuple[Stream, Ids]], shape: PrefillShape) -> Tensor:
        """The static rows of a shape, holding these newcomers and nobody. # int64 [rows, width]"""
        packed = self._layout.pack(newcomers, *shape)
        rows = self._rows[: packed.size].view(packed.shape)
        upload_into(rows, packed)
        return rows

    def _audio_of(self, shape: PrefillShape) -> Tensor:
        return self._audio[: shape.rows * shape.positions].unflatten(0, tuple(shape))
