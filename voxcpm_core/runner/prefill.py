"""A newcomer's first pass: encode its audio, run the prefix, warm its VAE state."""

from __future__ import annotations

import torch
from torch import Tensor

from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import Prefix, VoxCPMModel
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.scheduler import Stream
from voxcpm_core.text.layout import prefill_layout
from voxcpm_core.types import PAD_SIDES, Condition, EngineRequest, PadSide
from voxcpm_core.vae import StreamDecoder, VaeEncoder


class Prefiller:
    """Runs one request's prefix and leaves its state in its slot."""

    def __init__(
        self, model: VoxCPMModel, encoder: VaeEncoder, decoder: StreamDecoder, buffers: SlotBuffers, cache: KvCache
    ) -> None:
        self._config: ModelConfig = model.config
        self._model = model
        self._encoder = encoder
        self._decoder = decoder
        self._buffers = buffers
        self._cache = cache

    def __call__(self, stream: Stream) -> None:
        request = stream.request
        reference = self._latents(request.reference, PAD_SIDES["reference"])
        prompt = self._latents(request.prompt, PAD_SIDES["prompt"])
        context = PagedContext(
            page_table=self._buffers.page_table[stream.slot : stream.slot + 1],
            positions=torch.arange(request.num_prefill, device=self._model.device).unsqueeze(0),
            max_context=request.num_prefill,
            page_size=self._cache.page_size,
        )
        self._buffers.join(stream)
        prefix = self._prefix(request, reference, prompt)
        state = self._model.prefill(prefix, self._cache, context)
        slot = torch.tensor([stream.slot], device=self._model.device)
        self._buffers.store(slot, state)
        if request.wants_audio and prefix.ends_with_audio:
            # As in the official offline decode, which fills up with the reference when the prompt is short.
            self._warm_decoder(slot, prefix.patches[-self._config.context_patches :])

    def _latents(self, condition: Condition | None, pad: PadSide) -> Tensor:
        """Patches [N, P, C] in model dtype; a waveform is padded on the side that its role asks for."""
        device, dtype, patch_size = self._model.device, self._model.dtype, self._config.patch_size
        if condition is None:
            return torch.zeros(0, patch_size, self._config.feat_dim, device=device, dtype=dtype)
        if condition.latents is not None:
            latents = torch.from_numpy(condition.latents).to(device)
            return latents.unflatten(0, (-1, patch_size)).to(dtype)
        waveform = torch.from_numpy(condition.waveform).to(device)
        return self._encoder.encode_patches(waveform, patch_size, pad).to(dtype)

    def _prefix(self, request: EngineRequest, reference: Tensor, prompt: Tensor) -> Prefix:
        layout = prefill_layout(request.token_ids, prompt.shape[0], reference.shape[0])
        device = self._model.device
        return Prefix(
            token_ids=torch.from_numpy(layout.ids).unsqueeze(0).to(device),
            patches=torch.cat((reference, prompt)),
            patch_positions=torch.tensor([*layout.reference, *layout.prompt], dtype=torch.int64, device=device),
            ends_with_audio=prompt.shape[0] > 0,
        )

    def _warm_decoder(self, slot: Tensor, patches: Tensor) -> None:
        """Decode patches [n, P, C] from a cold start and keep the state; their samples are dropped."""
        latents = patches.float().flatten(0, 1).t().unsqueeze(0)  # [1, C, frames]
        self._decoder.decode_slots(latents, self._buffers.vae_state, slot)
