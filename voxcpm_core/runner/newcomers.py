"""What the host tells the device of newcomers: a row of integers each, so that all of it goes in one copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from voxcpm_core.lora.pool import NO_SLOT
from voxcpm_core.scheduler import Stream

_SLOT, _NUM_PREFILL, _NUM_KNOWN, _SEED, _CFG, _TEMPERATURE, _LORA_SLOT, _NUM_FIELDS = range(8)

Ids = npt.NDArray[np.int64]


class Newcomers(NamedTuple):
    """N newcomers on the device, what is to be run of their prefixes filled up to T positions."""

    slots: Tensor  # int64 [N]
    lora_slots: Tensor  # int64 [N], NO_SLOT without an adapter
    num_prefill: Tensor  # int64 [N], positions of each prefix
    num_known: Tensor  # int64 [N], of these the first so many are in the stream's pages already
    seeds: Tensor  # int64 [N]
    cfg_values: Tensor  # float32 [N]
    temperatures: Tensor  # float32 [N]
    pages: Tensor  # int64 [N, max_pages], nobody's after their own
    token_ids: Tensor  # int64 [N, T], of the others


@dataclass(frozen=True)
class RowLayout:
    """Packs rows on the host and cuts them on the device. Batches are filled up with nobody's slot."""

    max_pages: int
    nobody: int  # slot
    nobodys_page: int

    def width(self, num_positions: int) -> int:
        return _NUM_FIELDS + self.max_pages + num_positions

    def pack(
        self, newcomers: Sequence[tuple[Stream, Ids]], num_rows: int, num_positions: int
    ) -> npt.NDArray[np.int64]:
        """Rows [num_rows, width] of streams and the ids of their prefixes that are not known."""
        rows = np.zeros((num_rows, self.width(num_positions)), np.int64)
        rows[:, _SLOT], rows[:, _NUM_PREFILL], rows[:, _LORA_SLOT] = self.nobody, 1, NO_SLOT
        rows[:, _NUM_FIELDS : _NUM_FIELDS + self.max_pages] = self.nobodys_page
        floats = rows.view(np.float64)
        for row, (stream, ids) in enumerate(newcomers):
            request = stream.request
            rows[row, _SLOT], rows[row, _SEED] = stream.slot, request.seed
            rows[row, _NUM_PREFILL], rows[row, _NUM_KNOWN] = stream.num_known + len(ids), stream.num_known
            floats[row, _CFG], floats[row, _TEMPERATURE] = request.cfg_value, request.temperature
            rows[row, _LORA_SLOT] = stream.lora_slot
            rows[row, _NUM_FIELDS : _NUM_FIELDS + len(stream.pages)] = stream.pages
            start = _NUM_FIELDS + self.max_pages
            rows[row, start : start + len(ids)] = ids
        return rows

    def cut(self, rows: Tensor) -> Newcomers:
        """rows: int64 [N, width]."""
        floats = rows[:, _CFG : _TEMPERATURE + 1].view(torch.float64).float()
        start = _NUM_FIELDS + self.max_pages
        return Newcomers(
            slots=rows[:, _SLOT].contiguous(),
            lora_slots=rows[:, _LORA_SLOT].contiguous(),
            num_prefill=rows[:, _NUM_PREFILL],
            num_known=rows[:, _NUM_KNOWN],
            seeds=rows[:, _SEED],
            cfg_values=floats[:, 0],
            temperatures=floats[:, 1],
            pages=rows[:, _NUM_FIELDS:start],
            token_ids=rows[:, start:],
        )
