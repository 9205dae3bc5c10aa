"""Per-slot device state: static arrays that the decode step gathers from and scatters to.

The host writes a slot's row when a request joins; after that the device advances it by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.lora.pool import NO_SLOT
from voxcpm_core.model.voxcpm import StreamState
from voxcpm_core.runner.newcomers import Newcomers, RowLayout


class SlotBuffers:
    """All state of the running streams, one row a slot."""

    def __init__(
        self, config: ModelConfig, layout: RowLayout, vae_state_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """The last slot is nobody's and only fills batches up."""

        def zeros(*shape: int, of: torch.dtype = dtype) -> Tensor:
            return torch.zeros(layout.nobody + 1, *shape, device=device, dtype=of)

        hidden = config.base_lm.hidden_size
        self.lm_hidden = zeros(hidden)
        self.res_hidden = zeros(hidden)
        self.last_patch = zeros(config.patch_size, config.feat_dim)
        self.page_table = zeros(layout.max_pages, of=torch.int64)
        self.page_table[-1] = layout.nobodys_page
        self.lora_slot = zeros(of=torch.int64).fill_(NO_SLOT)
        self.position = zeros(of=torch.int64)  # KV position that the next patch will take
        self.patch_index = zeros(of=torch.int64)
        self.seed = zeros(of=torch.int64)
        self.cfg_value = zeros(of=torch.float32)
        self.temperature = zeros(of=torch.float32)
        self.vae_state = zeros(vae_state_size, of=torch.float32)

    @property
    def num_bytes(self) -> int:
        return sum(value.nbytes for value in vars(self).values())

    def join(self, newcomers: Newcomers) -> None:
        """Write the rows of newcomers. Nothing of what their slots held before is left."""
        slots = newcomers.slots
        self.page_table[slots] = newcomers.pages
        self.lora_slot[slots] = newcomers.lora_slots
        self.position[slots] = newcomers.num_prefill
        self.seed[slots] = newcomers.seeds
        self.cfg_value[slots] = newcomers.cfg_values
        self.temperature[slots] = newcomers.temperatures
        for fresh in (self.patch_index, self.last_patch, self.vae_state):
            fresh.index_fill_(0, slots, 0)

    def state(self, slots: Tensor) -> StreamState:
        """slots: int64 [B]."""
        return StreamState(self.lm_hidden[slots], self.res_hidden[slots], self.last_patch[slots])

    def store_hidden(self, slots: Tensor, lm_hidden: Tensor, res_hidden: Tensor) -> None:
        self.lm_hidden[slots] = lm_hidden
        self.res_hidden[slots] = res_hidden

    def advance(self, slots: Tensor) -> None:
        self.position[slots] += 1
        self.position[-1:].zero_()  # nobody's has no end of its own
        self.patch_index[slots] += 1
