"""One decode step on the state of the slots: DiT, then the VAE decoder beside local encoder and language models.

Everything that a step reads or writes on the device stays where it is from step to step, so that the same code can be
captured in CUDA graphs; only the numbers of the slots come from the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.noise import NoiseSource
from voxcpm_core.vae import StreamDecoder


class StepOutputs(NamedTuple):
    """What the host wants of a step."""

    patches: Tensor  # float32 [B, P, C]
    stop: Tensor  # bool [B]: the next patch is to be the last
    audio: Tensor  # float32 [A, samples_per_patch], of those rows that are heard


class Stepper(Protocol):
    """Runs the two halves of a step for slots given by number."""

    def solve(self, slots: Sequence[int], num_steps: int) -> None:
        """Make each slot's next patch in so many Euler steps, and keep it as its last."""

    def finish(self, slots: Sequence[int], heard: Sequence[int], max_context: int) -> StepOutputs:
        """Decode the patches of the rows `heard`, feed all back, and advance. The outputs last until the next step."""


class DecodeStep:
    """Both halves on device tensors."""

    def __init__(
        self, model: VoxCPMModel, decoder: StreamDecoder, buffers: SlotBuffers, cache: KvCache, noise: NoiseSource
    ) -> None:
        self.model = model
        self.noise = noise
        self._decoder = decoder
        self._buffers = buffers
        self._cache = cache

    def solve(self, slots: Tensor, num_steps: int) -> None:
        """slots: int64 [B]."""
        config, buffers = self.model.config, self._buffers
        seeds, indices = buffers.seed[slots], buffers.patch_index[slots]
        noise = self.noise(seeds, indices, config.patch_size, config.feat_dim).to(self.model.dtype)
        noise = (noise * buffers.temperature[slots].view(-1, 1, 1)).to(self.model.dtype)
        state, cfg_value = buffers.state(slots), buffers.cfg_value[slots]
        buffers.last_patch[slots] = self.model.generate_patch(state, noise, cfg_value, num_steps)

    def finish(
        self, slots: Tensor, heard: Tensor | None, max_context: int, beside: torch.cuda.Stream | None = None
    ) -> StepOutputs:
        """slots: int64 [B]; heard: int64 [A], rows, None for all; `beside`: where the VAE runs at the same time."""
        buffers = self._buffers
        patches = buffers.last_patch[slots]
        main = None if beside is None else torch.cuda.current_stream()
        if beside is not None and main is not None:
            beside.wait_stream(main)
        with torch.cuda.stream(beside) if beside is not None else nullcontext():
            audio = self._audio(slots, patches, heard)
        context = PagedContext(
            page_table=buffers.page_table[slots],
            positions=buffers.position[slots].unsqueeze(1),
            max_context=max_context,
            page_size=self._cache.page_size,
        )
        output = self.model.advance(patches, self._cache, context)
        buffers.store_hidden(slots, output.lm_hidden, output.res_hidden)
        buffers.advance(slots)
        if beside is not None and main is not None:
            main.wait_stream(beside)
        return StepOutputs(patches.float(), output.stop, audio)

    def _audio(self, slots: Tensor, patches: Tensor, heard: Tensor | None) -> Tensor:
        if heard is not None:
            slots, patches = slots[heard], patches[heard]
        if not len(slots):
            return torch.zeros(0, self.model.config.samples_per_patch, device=slots.device)
        return self._decoder.decode_slots(patches.float().transpose(1, 2), self._buffers.vae_state, slots)


class EagerStepper:
    """Batches of exactly the rows there are."""

    def __init__(self, step: DecodeStep) -> None:
        self._step = step
        self._device = step.model.device

    def solve(self, slots: Sequence[int], num_steps: int) -> None:
        self._step.solve(torch.tensor(slots, device=self._device), num_steps)

    def finish(self, slots: Sequence[int], heard: Sequence[int], max_context: int) -> StepOutputs:
        rows = None if len(heard) == len(slots) else torch.tensor(heard, dtype=torch.int64, device=self._device)
        return self._step.finish(torch.tensor(slots, device=self._device), rows, max_context)
