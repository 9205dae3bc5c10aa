"""One decode step on the state of the slots: DiT, then VAE decoder, local encoder and language models.

Everything that a step reads or writes on the device stays where it is from step to step, so that the same code can be
captured in CUDA graphs; only the numbers of the slots come from the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.dit import Given
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.output_layout import OutputLayout
from voxcpm_core.runner.beside import Beside
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.noise import NoiseSource
from voxcpm_core.runner.outputs import StepOutputs, step_outputs
from voxcpm_core.runner.threads import threads_for
from voxcpm_core.runner.upload import upload
from voxcpm_core.vae import StreamDecoder


class Stepper(Protocol):
    """Runs the parts of a step for slots given by number."""

    beside: Beside | None  # where audio is made while the engine's stream goes on; None: in line

    def solve(self, slots: Sequence[int], num_steps: int) -> None:
        """Make each slot's next patch in so many Euler steps, and keep it as its last."""

    def finish(self, slots: Sequence[int], heard: Sequence[int], max_context: int) -> StepOutputs:
        """Decode the patches of the rows `heard`, feed all back, and advance.

        The outputs, which may have more rows, last until the next step finishes.
        """


class DecodeStep:
    """All parts on device tensors."""

    def __init__(
        self, model: VoxCPMModel, decoder: StreamDecoder, buffers: SlotBuffers, cache: KvCache, noise: NoiseSource
    ) -> None:
        self.model = model
        self.noise = noise
        self._decoder = decoder
        self.buffers = buffers
        self._cache = cache

    @property
    def most_context(self) -> int:
        """Positions that any request may hold."""
        return self.buffers.page_table.shape[1] * self._cache.page_size

    def solve(self, slots: Tensor, num_steps: int) -> None:
        """slots: int64 [B]."""
        buffers = self.buffers
        state, noise = buffers.state(slots), self._noise(slots)
        with self.model.adapted(buffers.lora_slot, slots):
            patches = self.model.generate_patch(state, noise, buffers.cfg_value[slots], num_steps)
        buffers.last_patch[slots] = patches

    def begin(self, slots: Tensor) -> Given:
        """Solving in pieces: each slot's last patch becomes the noise that its next one starts from."""
        state = self.buffers.state(slots)
        with self.model.adapted(self.buffers.lora_slot, slots):
            mu = self.model.conditioning(state.lm_hidden, state.res_hidden)
            given = self.model.dit.given(mu, state.last_patch)
        self.buffers.last_patch[slots] = self._noise(slots)
        return given

    def evaluate(self, slots: Tensor, given: Given, time_token: Tensor, step: Tensor) -> None:
        """After `begin`: one Euler step. time_token: [hidden]; step: []."""
        buffers = self.buffers
        patches, cfg_values = buffers.last_patch[slots], buffers.cfg_value[slots]
        with self.model.adapted(buffers.lora_slot, slots):
            patches = self.model.dit.evaluate(patches, given, cfg_values, time_token, step)
        buffers.last_patch[slots] = patches

    def _noise(self, slots: Tensor) -> Tensor:
        """[B, P, C], scaled by the temperature."""
        config, buffers = self.model.config, self.buffers
        seeds, indices = buffers.seed[slots], buffers.patch_index[slots]
        noise = self.noise(seeds, indices, config.patch_size, config.feat_dim).to(self.model.dtype)
        return (noise * buffers.temperature[slots].view(-1, 1, 1)).to(self.model.dtype)

    def patches(self, slots: Tensor, out: Tensor | None = None) -> Tensor:
        """What was solved last for slots int64 [B], in `out` where that is given. # [B, P, C]"""
        return torch.index_select(self.buffers.last_patch, 0, slots, out=out)

    def decode_audio(self, slots: Tensor, patches: Tensor) -> Tensor:
        """patches: [B, P, C] of slots int64 [B]. # float32 [B, samples_per_patch]"""
        return self._decoder.decode_slots(patches.float().transpose(1, 2), self.buffers.vae_state, slots)

    def feed_back(self, slots: Tensor, patches: Tensor, max_context: int) -> Tensor:
        """Local encoder and language models take the patches in [B, P, C]; the slots advance. # bool [B]: stop"""
        buffers = self.buffers
        context = PagedContext(
            page_table=buffers.page_table[slots],
            positions=buffers.position[slots].unsqueeze(1),
            max_context=max_context,
            page_size=self._cache.page_size,
        )
        with self.model.adapted(buffers.lora_slot, slots):
            output = self.model.advance(patches, self._cache, context)
        buffers.store_hidden(slots, output.lm_hidden, output.res_hidden)
        buffers.advance(slots)
        return output.stop


class EagerStepper:
    """Batches of exactly the rows there are."""

    beside = None

    def __init__(self, step: DecodeStep) -> None:
        self._step = step
        self._device = step.model.device
        self._layout = OutputLayout.of(step.model.config)

    def solve(self, slots: Sequence[int], num_steps: int) -> None:
        num_values = len(slots) * self._step.model.config.dit.hidden_size
        with threads_for(num_values, self._device):
            self._step.solve(self._upload(slots), num_steps)

    def finish(self, slots: Sequence[int], heard: Sequence[int], max_context: int) -> StepOutputs:
        dev_slots = self._upload(slots)
        patches = self._step.patches(dev_slots)
        num_bytes = self._layout.num_bytes(len(slots), bool(heard))
        memory = torch.empty(num_bytes, dtype=torch.uint8, device=self._device)
        outputs = step_outputs(self._layout, memory, len(slots), bool(heard))
        outputs.patches.copy_(patches)
        if heard:
            rows = slice(None) if len(heard) == len(slots) else self._upload(heard)
            outputs.audio[rows] = self._step.decode_audio(dev_slots[rows], patches[rows])
        outputs.stop.copy_(self._step.feed_back(dev_slots, patches, max_context))
        return outputs

    def _upload(self, numbers: Sequence[int]) -> Tensor:
        return upload(np.array(numbers, np.int64), self._device)
