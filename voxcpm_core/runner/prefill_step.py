"""The prefix pass of newcomers on device tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import AUDIO_ROW, VoxCPMModel
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.newcomers import Ids, Newcomers, RowLayout
from voxcpm_core.runner.sizes import PrefillBatch, PrefillShape
from voxcpm_core.runner.upload import upload
from voxcpm_core.scheduler import Stream, pages_for
from voxcpm_core.text.layout import PrefillLayout


class Prefix(NamedTuple):
    """A newcomer whose audio is encoded."""

    stream: Stream
    layout: PrefillLayout  # of the positions that are not known
    patches: list[Tensor]  # [n, P, C] in model dtype: those that the speech continues, the last of them last
    embedded: list[Tensor]  # [n, hidden], the local encoder's embeddings of each audio in the layout

    @property
    def ids(self) -> Ids:
        """int64 [S], AUDIO_ROW where a patch stands."""
        ids = np.array(self.layout.ids)
        for places in (self.layout.reference, self.layout.prompt):
            ids[places.start : places.stop] = AUDIO_ROW
        return ids

    def place(self, audio: Tensor) -> None:
        """Write the embeddings into zeros [T, hidden], where their patches stand."""
        filled = [places for places in (self.layout.reference, self.layout.prompt) if places]
        for places, rows in zip(filled, self.embedded, strict=True):
            audio[places.start : places.stop] = rows


class PrefillStep:
    """Writes newcomers' rows and runs their prefixes; what conditions their first patches stays in their slots."""

    def __init__(self, model: VoxCPMModel, buffers: SlotBuffers, cache: KvCache, max_positions: int) -> None:
        """`max_positions`: of one request."""
        self.model = model
        self.max_positions = max_positions
        self._buffers = buffers
        self._page_size = cache.page_size
        self._cache = cache

    def __call__(self, newcomers: Newcomers, audio: Tensor, max_context: int) -> None:
        """audio: [N, T, hidden], zero where there is none; `max_context`: at least the longest prefix, filled up.

        Positions that fill a prefix up write keys that the stream's own patches replace before anybody reads them, or
        to nobody's page. Behind the last position that a request may have, which no prefix reaches, they stay on it.
        """
        num_positions = newcomers.token_ids.shape[1]
        max_context = min(max_context, self.max_positions)
        self._buffers.join(newcomers)
        positions = newcomers.num_known.unsqueeze(1) + torch.arange(num_positions, device=audio.device)
        context = PagedContext(
            page_table=newcomers.pages[:, : pages_for(max_context, self._page_size)],
            positions=positions.clamp(max=self.max_positions - 1),
            max_context=max_context,
            page_size=self._page_size,
        )
        last = newcomers.num_prefill - newcomers.num_known - 1
        with self.model.adapted(newcomers.lora_slots):
            output = self.model.prefill(newcomers.token_ids, audio, last, self._cache, context)
        self._buffers.store_hidden(newcomers.slots, output.lm_hidden, output.res_hidden)


class PrefillRunner(Protocol):
    """Shares newcomers out into batches and runs them."""

    def can_run_beside(self, num_positions: int) -> bool:
        """Whether a text of so many positions may run beside a step, with others like it one after the other."""

    def embed(self, patches: Tensor) -> Tensor:
        """The local encoder: [n, P, C] -> [n, hidden]."""

    def batches(self, lengths: Sequence[int]) -> list[PrefillBatch]:
        """For prefixes of so many positions."""

    def run(self, prefixes: Sequence[Prefix], batch: PrefillBatch) -> None:
        """Of one batch."""


class EagerPrefill:
    """Each newcomer alone, in exactly the shape it has."""

    def __init__(self, step: PrefillStep, layout: RowLayout) -> None:
        self._step = step
        self._layout = layout

    def can_run_beside(self, num_positions: int) -> bool:
        return self._step.model.device.type == "cpu"  # where a step is over as soon as it is launched

    def embed(self, patches: Tensor) -> Tensor:
        return self._step.model.local_encoder(patches)

    def batches(self, lengths: Sequence[int]) -> list[PrefillBatch]:
        return [PrefillBatch((i,), PrefillShape(1, length), has_graph=False) for i, length in enumerate(lengths)]

    def run(self, prefixes: Sequence[Prefix], batch: PrefillBatch) -> None:
        model, shape = self._step.model, batch.shape
        packed = self._layout.pack([(prefix.stream, prefix.ids) for prefix in prefixes], *shape)
        newcomers = self._layout.cut(upload(packed, model.device))
        audio = torch.zeros(*shape, model.config.base_lm.hidden_size, device=model.device, dtype=model.dtype)
        for row, prefix in zip(audio, prefixes, strict=False):
            prefix.place(row)
        num_known = max((prefix.stream.num_known for prefix in prefixes), default=0)
        self._step(newcomers, audio, num_known + shape.positions)
