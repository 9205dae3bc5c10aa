"""Streaming state of a causal network: one flat float32 row per stream, cut into one slice per layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StateSlice:
    """Where a layer keeps the last `frames` frames of its input within the row."""

    name: str
    channels: int
    frames: int
    offset: int  # in floats

    @property
    def size(self) -> int:
        return self.channels * self.frames

    def extend(self, x: Tensor, state: Tensor) -> Tensor:
        """Put the kept frames before `x` [B, C, T] and keep the last frames of the result instead, in place.

        `state` is [B, state_size]; the answer [B, C, frames + T] shares no memory with it.
        """
        kept = state[:, self.offset : self.offset + self.size].view(-1, self.channels, self.frames)
        extended = torch.cat((kept, x), dim=-1)  # [B, C, frames + T]
        kept.copy_(extended[..., x.shape[-1] :])
        return extended


class StateLayout:
    """The slices of a row, in the order in which the layers reserved them."""

    def __init__(self) -> None:
        self.slices: list[StateSlice] = []

    @property
    def size(self) -> int:
        """Floats of one row."""
        return sum(part.size for part in self.slices)

    def reserve(self, name: str, channels: int, frames: int) -> StateSlice:
        part = StateSlice(name, channels, frames, offset=self.size)
        self.slices.append(part)
        return part

    def zeros(self, num_rows: int, device: torch.device) -> Tensor:
        """Rows of fresh streams. # [num_rows, size]"""
        return torch.zeros(num_rows, self.size, dtype=torch.float32, device=device)
