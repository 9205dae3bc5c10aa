"""What the host wants of a step, on the device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.output_layout import OutputLayout


class StepOutputs(NamedTuple):
    """Views of one memory: B rows, of which the last may fill a batch up."""

    memory: Tensor  # uint8 [num_bytes]
    patches: Tensor  # float32 [B, P, C]
    stop: Tensor  # bool [B]: the next patch is to be the last
    audio: Tensor  # float32 [B, samples_per_patch], anything in rows that nobody hears; [0, ...] when that is all

    @property
    def num_rows(self) -> int:
        return len(self.stop)


def step_outputs(layout: OutputLayout, memory: Tensor, num_rows: int, with_audio: bool = True) -> StepOutputs:
    """For so many rows, at the start of memory uint8 [at least num_bytes]."""
    memory = memory[: layout.num_bytes(num_rows, with_audio)]
    stops_at, audio_at = layout.starts(num_rows)
    num_values = num_rows * layout.patch_size * layout.feat_dim
    return StepOutputs(
        memory,
        memory[: 4 * num_values].view(torch.float32).view(num_rows, layout.patch_size, layout.feat_dim),
        memory[stops_at : stops_at + num_rows].view(torch.bool),
        memory[audio_at:].view(torch.float32).view(-1, layout.samples_per_patch),
    )
