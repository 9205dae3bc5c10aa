"""A newcomer's first pass: encode its audio, run the prefix, warm its VAE state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from voxcpm_core.lora.slots import LoadedLora
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.conditions import ConditionEncoder, Sound
from voxcpm_core.runner.prefill_step import PrefillRunner, Prefix
from voxcpm_core.runner.upload import upload
from voxcpm_core.scheduler import Stream
from voxcpm_core.text.layout import num_reference_patches, prefill_layout
from voxcpm_core.types import PAD_SIDES, EngineRequest
from voxcpm_core.vae import StreamDecoder

Failures = list[tuple[Stream, Exception]]


class Prefiller:
    """Runs the prefixes of newcomers and leaves their state in their slots."""

    def __init__(
        self, model: VoxCPMModel, conditions: ConditionEncoder, decoder: StreamDecoder, buffers: SlotBuffers,
        cache: KvCache, runner: PrefillRunner,
    ) -> None:
        self._model = model
        self._conditions = conditions
        self._decoder = decoder
        self._buffers = buffers
        self._cache = cache
        self._runner = runner

    def __call__(self, streams: Sequence[Stream]) -> Failures:
        """Those whose prefill raised, and what. Any fault inside a prefill is that of its own batch."""
        failures: Failures = []
        prefixes: list[Prefix] = []
        for stream in streams:  # all before any prefix writes, since a source may have become another's page
            if stream.tail_source is not None:
                self._cache.copy_page(stream.tail_source, stream.pages[stream.num_known // self._cache.page_size])
        for stream in streams:
            try:
                prefixes.append(self._prefix(stream))
            except Exception as error:
                failures.append((stream, error))
        for batch in self._runner.batches([len(prefix.layout.ids) for prefix in prefixes]):
            members = [prefixes[index] for index in batch.members]
            try:
                self._runner.run(members, batch)
                for prefix in members:
                    self._continue_prompt(prefix)
            except Exception as error:
                failures += [(prefix.stream, error) for prefix in members]
        return failures

    def may_run_beside(self, request: EngineRequest) -> bool:
        """Whether its prefix may run beside a step: text alone, and not too long."""
        is_plain = request.lora is None and not request.conditions
        return is_plain and self._runner.can_run_beside(request.num_prefill)

    def _prefix(self, stream: Stream) -> Prefix:
        request, model = stream.request, self._model
        if model.lora is not None and isinstance(stream.lora, LoadedLora):
            model.lora.put(stream.lora_slot, stream.lora)
        prompt = self._sounds(stream, "prompt")
        num_prompt_patches = sum(len(sound.patches) for sound in prompt)
        is_short = 0 < num_prompt_patches < model.config.context_patches  # and is filled up with the reference
        reference = self._sounds(stream, "reference") if is_short or not stream.num_known else []
        num_reference = num_reference_patches(request.num_voice_positions)
        layout = prefill_layout(request.token_ids, num_prompt_patches, num_reference)
        unknown = [*reference, *prompt]
        if stream.num_known:
            layout, unknown = layout.after(stream.num_known), prompt
            self._conditions.num_hits += 1
        with model.adapted_by(stream.lora_slot):
            embedded = self._conditions.embedded(unknown, stream.lora_digest, self._runner.embed)
        return Prefix(stream, layout, [sound.patches for sound in (*reference, *prompt)], embedded)

    def _sounds(self, stream: Stream, role: str) -> list[Sound]:
        """One, or none where there is no such audio."""
        pad = PAD_SIDES[role]
        condition = stream.request.conditions.get(pad)
        if condition is None:
            return []
        encoded = stream.encoded.get(pad)
        assert encoded is None or isinstance(encoded, Tensor)
        return [self._conditions.sound(condition, pad, encoded)]

    def _continue_prompt(self, prefix: Prefix) -> None:
        """The prompt's last patch conditions the first of the speech, and its last ones warm the decoder.

        The decoder starts as in the official offline decode, which fills up with the reference when the prompt is
        short; the samples are dropped.
        """
        if not len(prefix.layout.prompt):
            return
        stream, patches = prefix.stream, prefix.patches
        self._buffers.last_patch[stream.slot] = patches[-1][-1]
        if stream.request.wants_audio:
            latents = torch.cat(patches)[-self._model.config.context_patches :].float().flatten(0, 1).t()  # [C, frames]
            slot = upload(np.array([stream.slot]), latents.device)
            self._decoder.decode_slots(latents.unsqueeze(0), self._buffers.vae_state, slot)
