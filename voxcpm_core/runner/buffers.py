"""Per-slot device state: static arrays that the decode step gathers from and scatters to.

The host writes a slot's row when a request joins; after that the device advances it by itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.model.voxcpm import StreamState
from voxcpm_core.scheduler import Stream


class SlotBuffers:
    """All state of the running streams, one row a slot."""

    def __init__(
        self, config: ModelConfig, num_slots: int, max_pages: int, nobodys_page: int, vae_state_size: int,
        device: torch.device, dtype: torch.dtype,
    ) -> None:
        """The last slot is nobody's and only fills batches up; `nobodys_page` is what it writes to."""

        def zeros(*shape: int, of: torch.dtype = dtype) -> Tensor:
            return torch.zeros(num_slots, *shape, device=device, dtype=of)

        hidden = config.base_lm.hidden_size
        self.lm_hidden = zeros(hidden)
        self.res_hidden = zeros(hidden)
        self.last_patch = zeros(config.patch_size, config.feat_dim)
        self.page_table = zeros(max_pages, of=torch.int64)
        self.page_table[-1] = nobodys_page
        self.position = zeros(of=torch.int64)  # KV position that the next patch will take
        self.patch_index = zeros(of=torch.int64)
        self.seed = zeros(of=torch.int64)
        self.cfg_value = zeros(of=torch.float32)
        self.temperature = zeros(of=torch.float32)
        self.vae_state = zeros(vae_state_size, of=torch.float32)
        self._device = device

    def join(self, stream: Stream) -> None:
        """Write a newcomer's row."""
        slot, request = stream.slot, stream.request
        pages = torch.tensor(stream.pages, dtype=torch.int64)
        self.page_table[slot, : len(stream.pages)] = pages.to(self._device, non_blocking=True)
        self.position[slot] = request.num_prefill
        self.patch_index[slot] = 0
        self.seed[slot] = request.seed
        self.cfg_value[slot] = request.cfg_value
        self.temperature[slot] = request.temperature
        self.vae_state[slot] = 0.0

    def state(self, slots: Tensor) -> StreamState:
        """slots: int64 [B]."""
        return StreamState(self.lm_hidden[slots], self.res_hidden[slots], self.last_patch[slots])

    def store(self, slots: Tensor, state: StreamState) -> None:
        self.store_hidden(slots, state.lm_hidden, state.res_hidden)
        self.last_patch[slots] = state.last_patch

    def store_hidden(self, slots: Tensor, lm_hidden: Tensor, res_hidden: Tensor) -> None:
        self.lm_hidden[slots] = lm_hidden
        self.res_hidden[slots] = res_hidden

    def advance(self, slots: Tensor) -> None:
        self.position[slots] += 1
        self.position[-1] = 0  # nobody's has no end of its own
        self.patch_index[slots] += 1
