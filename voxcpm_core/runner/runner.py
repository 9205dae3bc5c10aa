"""launch and collect: one engine step on the device, and its outputs on the host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.kernel_set import KernelSet
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.output_layout import HostOutputs, OutputLayout
from voxcpm_core.runner.beside import Beside
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.conditions import ConditionEncoder, Encoding
from voxcpm_core.runner.decode import DecodeStep, EagerStepper, Stepper
from voxcpm_core.runner.graph_set import GraphSet, make_graphs
from voxcpm_core.runner.noise import CounterNoise, NoiseSource
from voxcpm_core.runner.outputs import StepOutputs
from voxcpm_core.runner.prefill import Failures, Prefiller
from voxcpm_core.runner.prefill_step import EagerPrefill, PrefillRunner, PrefillStep
from voxcpm_core.runner.sizes import RunnerSizes
from voxcpm_core.runner.transfer import HostArena, HostCopier, HostCopy
from voxcpm_core.scheduler import StepPlan, Stream
from voxcpm_core.types import EngineRequest, FloatArray
from voxcpm_core.vae import ChunkedEncoder, StreamDecoder


class InFlight(NamedTuple):
    """A launched step whose outputs have not been collected."""

    plan: StepPlan  # with the rows that ran
    failures: tuple[tuple[Stream, Exception], ...]  # newcomers whose prefill raised; they have no row
    copy: HostCopy | None  # None: no row ran
    num_rows: int = 0  # of its outputs, of which the first are the plan's

    @property
    def device_is_free(self) -> bool:
        """All of it is done but what is made beside the next step."""
        return self.copy is None or self.copy.device_is_free


class Runner:
    """Holds model, caches and slot state of one device."""

    def __init__(
        self, model: VoxCPMModel, encoder: ChunkedEncoder, decoder: StreamDecoder, sizes: RunnerSizes, *,
        kernels: KernelSet, use_graphs: bool = False, noise: NoiseSource | None = None, arena: HostArena | None = None,
        voice_cache_bytes: int = 0,
    ) -> None:
        """`noise`: None is counter noise, as in serving; `voice_cache_bytes`: of latents and embeddings kept."""
        self.config: ModelConfig = model.config
        self.model = model
        self.conditions = ConditionEncoder(encoder, model.config, model.device, model.dtype, voice_cache_bytes)
        # CLOCK_MONOTONIC, of the latest step that was collected:
        self.collected_ns = 0  # when its outputs were on the host
        self.freed_ns = 0  # when the device could go on with the next step
        self.num_dit_calls = 0  # velocity evaluations; a batch of any size is one
        # One page and one slot more than are given out: they fill batches up, and belong to nobody.
        cache = KvCache(model.config, sizes.num_pages + 1, sizes.page_size, model.device, model.dtype)
        layout = sizes.row_layout
        buffers = SlotBuffers(model.config, layout, decoder.state_size, model.device, model.dtype)
        self.decode_step = DecodeStep(model, decoder, buffers, cache, noise or CounterNoise(kernels.normal))
        self.prefill_step = PrefillStep(model, buffers, cache, sizes.max_positions)
        self.graphs: GraphSet | None = None
        stepper: Stepper = EagerStepper(self.decode_step)
        prefill: PrefillRunner = EagerPrefill(self.prefill_step, layout)
        if use_graphs:
            self.graphs = make_graphs(self.decode_step, self.prefill_step, sizes, kernels.layer_ops)
            stepper, prefill = self.graphs.stepper, self.graphs.prefill
        self._stepper = stepper
        self._layout = OutputLayout.of(model.config)
        self._beside = Beside(model.device)
        self._prefill = Prefiller(model, self.conditions, decoder, buffers, cache, prefill)
        self._copier = HostCopier(model.device, arena)

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> InFlight:
        """Enqueue a step's work. A newcomer whose prefill raises is left out; a raising decode is the caller's."""
        self._beside.join()
        if self.model.lora is not None:
            self.model.lora.is_idle = not plan.batch.has_adapters
        failures: Failures = []
        if plan.prefills:
            self._copier.hold()  # audio is still made beside, in slots that newcomers may take over
            failures = self._prefill(plan.prefills)
            self._beside.follow()
        if failures:
            plan = plan.without({stream for stream, _ in failures})
            if not plan.patch_indices:
                return InFlight(plan, tuple(failures), None)
        outputs = self._decode(plan)
        copy = self._copier.send(outputs.memory, self._stepper.beside)
        return InFlight(plan, tuple(failures), copy, outputs.num_rows)

    @property
    def can_prefill_beside(self) -> bool:
        """Whether that would begin at once."""
        return self._beside.is_idle

    def may_prefill_beside(self, request: EngineRequest) -> bool:
        """Whether it is of a kind that can be."""
        return self._prefill.may_run_beside(request)

    @torch.inference_mode()
    def prefill_beside(self, streams: Sequence[Stream]) -> Failures:
        """Launch prefixes, of which no slot and no page is a running step's, beside that step; the next launch comes
        after them. Those that raised, and what."""
        if self.model.lora is not None:
            self.model.lora.is_idle = True
        return self._beside.launch(lambda: self._prefill(streams))

    @torch.inference_mode()
    def capture(self) -> None:
        """Record all graphs, if there are to be graphs."""
        if self.graphs is not None:
            self.graphs.capture()
            self.require_device()

    @torch.inference_mode()
    def encode_chunk(self, encoding: Encoding) -> Tensor | None:
        """Launch the next chunk of some audio; patches float32 [N, P, C] when it was the last."""
        try:
            next(encoding)
        except StopIteration as ended:
            patches: Tensor = ended.value
            return patches
        return None

    @torch.inference_mode()
    def host_latents(self, patches: Tensor) -> FloatArray:
        """[N, P, C] as latents [frames, feat_dim], which waits for the device."""
        return patches.flatten(0, 1).cpu().numpy()

    def require_device(self) -> None:
        """Raise what CUDA says when its context is lost: then no later step can succeed."""
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)

    def collect(self, step: InFlight) -> HostOutputs:
        """Wait for a launched step with rows and take its outputs."""
        assert step.copy is not None
        memory = step.copy.wait().numpy()
        self.collected_ns = time.monotonic_ns()
        self.freed_ns = self.collected_ns - int(1e9 * step.copy.lag_s)
        return self._layout.on_host(memory, step.num_rows, len(step.plan.patch_indices))

    def _decode(self, plan: StepPlan) -> StepOutputs:
        """One batched solve per number of timesteps, then the rest for all rows at once."""
        batch = plan.batch
        for num_steps, slots in batch.slots_by_timesteps.items():
            self._stepper.solve(slots, num_steps)
            self.num_dit_calls += self.model.dit.num_evaluations(num_steps)
        self._copier.hold()
        return self._stepper.finish(batch.slots, batch.heard, plan.max_context)


def slot_state_bytes(config: ModelConfig, sizes: RunnerSizes, vae_state_size: int, dtype: torch.dtype) -> int:
    """What a runner's slots take on its device."""
    return SlotBuffers(config, sizes.row_layout, vae_state_size, torch.device("meta"), dtype).num_bytes
