"""A newcomer's first pass: encode its audio, run the prefix, warm its VAE state."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from voxcpm_core.lora.slots import LoadedLora
from voxcpm_core.model.voxcpm import VoxCPMModel
from voxcpm_core.runner.buffers import SlotBuffers
from voxcpm_core.runner.conditions import ConditionEncoder
from voxcpm_core.runner.prefill_step import PrefillRunner, Prefix
from voxcpm_core.runner.upload import upload
from voxcpm_core.scheduler import Stream
from voxcpm_core.text.layout import prefill_layout
from voxcpm_core.types import PAD_SIDES
from voxcpm_core.vae import StreamDecoder

Failures = list[tuple[Stream, Exception]]


class Prefiller:
    """Runs the prefixes of newcomers and leaves their state in their slots."""

    def __init__(
        self, model: VoxCPMModel, conditions: ConditionEncoder, decoder: StreamDecoder, buffers: SlotBuffers,
        runner: PrefillRunner,
    ) -> None:
        self._model = model
        self._conditions = conditions
        self._decoder = decoder
        self._buffers = buffers
        self._runner = runner

    def __call__(self, streams: Iterable[Stream]) -> Failures:
        """Those whose prefill raised, and what. Any fault inside a prefill is that of its own batch."""
        failures: Failures = []
        prefixes: list[Prefix] = []
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

    def _prefix(self, stream: Stream) -> Prefix:
        request, model = stream.request, self._model
        if model.lora is not None and isinstance(stream.lora, LoadedLora):
            model.lora.put(stream.lora_slot, stream.lora)
        given = {"reference": request.reference, "prompt": request.prompt}
        sounds = {
            role: self._conditions.sound(condition, PAD_SIDES[role])
            for role, condition in given.items() if condition is not None
        }  # fmt: skip
        with model.adapted_by(stream.lora_slot):
            embedded = self._conditions.embedded([*sounds.values()], stream.lora_digest, self._runner.embed)
        num_patches = {role: len(sounds[role].patches) if role in sounds else 0 for role in given}
        layout = prefill_layout(request.token_ids, num_patches["prompt"], num_patches["reference"])
        return Prefix(stream, layout, [sound.patches for sound in sounds.values()], embedded)

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
