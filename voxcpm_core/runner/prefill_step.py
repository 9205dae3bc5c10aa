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
    layout: PrefillLayout
    patches: list[Tensor]  # [n, P, C] in model dtype, of the reference, then of the prompt, as far as there are any
    embedded: list[Tensor]  # [n, hidden], the local encoder's embeddings of the same

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
        with self.model.adapted(newcomers.lora_slots):
            output = self.model.prefill(newcomers.token_ids, audio, last, self._cache, context)
        self._buffers.store_hidden(newcomers.slots, output.lm_hidden, output.res_hidden)


class PrefillRunner(Protocol):
    """Shares newcomers out into batches and runs them."""

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
        self._step(newcomers, audio)
