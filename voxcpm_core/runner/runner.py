"""launch and collect: one engine step on the device, and its outputs on the host."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import StreamState, VoxCPMModel
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.noise import NoiseSource, counter_noise
from voxcpm_core.runner.prefill import Prefiller
from voxcpm_core.runner.transfer import HostArena, HostCopy
from voxcpm_core.scheduler import Row, StepPlan, Stream, pages_for
from voxcpm_core.types import FloatArray, PadSide
from voxcpm_core.vae import VaeDecoder, VaeEncoder


@dataclass(frozen=True)
class InFlight:
    """A launched step whose outputs have not been collected."""

    rows: tuple[Row, ...]  # rows that ran
    failures: tuple[tuple[Stream, Exception], ...]  # newcomers whose prefill raised; they have no row
    copy: HostCopy | None  # None: no row ran


@dataclass(frozen=True)
class StepResult:
    """Host copies of one step's outputs: B rows, A of which have audio."""

    latents: FloatArray  # [B, P, C]
    audio: FloatArray  # [A, samples_per_patch]
    stops: list[bool]  # [B]


class Runner:
    """Holds model, caches and slot state of one device."""

    def __init__(
        self, model: VoxCPMModel, encoder: VaeEncoder, decoder: VaeDecoder, *, num_slots: int, num_pages: int,
        page_size: int, max_positions: int, noise: NoiseSource = counter_noise, arena: HostArena | None = None,
    ) -> None:
        self.config: ModelConfig = model.config
        self.model = model
        self._encoder = encoder
        self._decoder = decoder
        self.noise = noise
        self._arena = arena
        self.collected_ns = 0  # CLOCK_MONOTONIC, when the latest step's outputs were on the host
        self._cache = KvCache(model.config, num_pages, page_size, model.device, model.dtype)
        max_pages = pages_for(max_positions, page_size)
        self._buffers = SlotBuffers(
            model.config, num_slots, max_pages, decoder.state_size, model.device, model.dtype
        )
        self._prefill = Prefiller(model, encoder, decoder, self._buffers, self._cache)

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> InFlight:
        """Enqueue a step's work. A newcomer whose prefill raises is left out; a raising decode is the caller's."""
        failures = []
        for stream in plan.prefills:
            try:
                self._prefill(stream)
            except Exception as error:  # any fault inside one prefill is that request's own
                failures.append((stream, error))
        failed = {stream for stream, _ in failures}
        rows = tuple(row for row in plan.rows if row.stream not in failed)
        return InFlight(rows, tuple(failures), HostCopy(self._decode(rows), self._arena) if rows else None)

    @torch.inference_mode()
    def encode(self, waveform: FloatArray, pad: PadSide) -> FloatArray:
        """Latents [frames, feat_dim] of mono audio [samples], padded on one side to a whole patch."""
        dev_waveform = torch.from_numpy(waveform).to(self.model.device)
        patches = self._encoder.encode_patches(dev_waveform, self.config.patch_size, pad)  # [N, P, C]
        return patches.flatten(0, 1).float().cpu().numpy()

    def require_device(self) -> None:
        """Raise what CUDA says when its context is lost: then no later step can succeed."""
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)

    def collect(self, step: InFlight) -> StepResult:
        """Wait for a launched step with rows and take its outputs."""
        assert step.copy is not None
        latents, stops, audio = step.copy.wait()
        self.collected_ns = time.monotonic_ns()
        return StepResult(latents.numpy(), audio.numpy(), stops.tolist())

    def _decode(self, rows: tuple[Row, ...]) -> list[Tensor]:
        """DiT, then VAE beside local encoder and LMs.

        Returns patches float32 [B, P, C], stop flags [B], audio float32 [A, samples].
        """
        buffers, device = self._buffers, self.model.device
        slots = torch.tensor([row.slot for row in rows], device=device)
        patches = self._generate(rows, slots)
        audio = self._decode_audio(rows, slots, patches)
        context = PagedContext(
            page_table=buffers.page_table[slots],
            positions=buffers.position[slots].unsqueeze(1),
            max_context=max(row.context_length for row in rows),
            page_size=self._cache.page_size,
        )
        output = self.model.advance(patches, self._cache, context)
        buffers.store(slots, StreamState(output.lm_hidden, output.res_hidden, patches))
        buffers.advance(slots)
        return [patches.float(), output.stop, audio]

    def _generate(self, rows: tuple[Row, ...], slots: Tensor) -> Tensor:
        """One batched solve per number of timesteps."""
        config, buffers = self.config, self._buffers
        seeds, indices = buffers.seed[slots], buffers.patch_index[slots]
        noise = self.noise(seeds, indices, config.patch_size, config.feat_dim).to(self.model.dtype)
        noise = (noise * buffers.temperature[slots].view(-1, 1, 1)).to(self.model.dtype)
        state, cfg_value = buffers.state(slots), buffers.cfg_value[slots]
        groups: dict[int, list[int]] = {}
        for i, row in enumerate(rows):
            groups.setdefault(row.stream.request.inference_timesteps, []).append(i)
        if len(groups) == 1:
            return self.model.generate_patch(state, noise, cfg_value, next(iter(groups)))
        patches = torch.empty_like(noise)
        for num_steps, members in groups.items():
            at = torch.tensor(members, device=slots.device)
            part = StreamState(*(tensor[at] for tensor in state))
            patches[at] = self.model.generate_patch(part, noise[at], cfg_value[at], num_steps)
        return patches

    def _decode_audio(self, rows: tuple[Row, ...], slots: Tensor, patches: Tensor) -> Tensor:
        """Audio of the rows that want it: [A, samples_per_patch]."""
        heard = [i for i, row in enumerate(rows) if row.stream.request.wants_audio]
        if not heard:
            return torch.zeros(0, self.config.samples_per_patch, device=slots.device)
        if len(heard) < len(rows):
            at = torch.tensor(heard, device=slots.device)
            slots, patches = slots[at], patches[at]
        return self._decoder.decode_slots(patches.float().transpose(1, 2), self._buffers.vae_state, slots)
