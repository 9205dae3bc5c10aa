"""The losses of the acoustic model: flow matching, stopping, and guesses that speed up the alignment."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from demo_voice.guesses import Guesses
from demo_voice.model_forward import SpeechModel

MAX_HISTORY_NOISE = 0.25  # of the latents' deviation of 1; generated patches are not as clean as the data
NOISY_SEQUENCES = 0.5
MU_DROP = 0.12  # what guidance compares with
PATCH_WEIGHT, PHONES_WEIGHT, STOP_WEIGHT = 0.3, 0.2, 0.2


class TensorBatch(NamedTuple):
    """`layouts.Batch` on the device."""

    token_ids: Tensor
    frames: Tensor
    audio_rows: Tensor
    targets: Tensor
    previous: Tensor
    is_last: Tensor
    weights: Tensor


class Frames(NamedTuple):
    """What a batch holds numbers of, on the device."""

    latents: Tensor  # [frames, C]
    phones: Tensor  # uint8 [frames]

    def of(self, batch: TensorBatch) -> Frames:
        """Those of the batch's patches. # [N, P, C], int64 [N, P]"""
        return Frames(F.embedding(batch.frames, self.latents), self.phones[batch.frames].long())


class Losses(NamedTuple):
    """Means over the predicted patches."""

    flow: Tensor
    stop: Tensor
    patch: Tensor
    phones: Tensor

    def total(self) -> Tensor:
        guesses = PATCH_WEIGHT * self.patch + PHONES_WEIGHT * self.phones
        return self.flow + STOP_WEIGHT * self.stop + guesses


def losses(model: SpeechModel, guesses: Guesses, batch: TensorBatch, frames: Frames) -> Losses:
    """One batch's losses, with fresh noise and times from torch's generator; frames: those of the batch.

    `guesses` is the shortest way for the gradient to tell the language models what to say next.
    """
    patches = frames.latents
    history = noisy_history(patches, batch.audio_rows // batch.token_ids.shape[1], batch.token_ids.shape[0])
    states = model.states(batch.token_ids, history, batch.audio_rows)
    rows = batch.audio_rows[batch.targets] - 1  # each patch is conditioned by the row before it
    lm_hidden = states.lm_hidden.flatten(0, 1)[rows]
    mu = model.conditioning(lm_hidden, states.res_hidden.flatten(0, 1)[rows])  # [M, mu_size]
    target = patches[batch.targets]
    previous = torch.cat((history, torch.zeros_like(history[:1])))[batch.previous]
    stop = F.cross_entropy(model.stop_logits(lm_hidden).float(), batch.is_last, reduction="none")
    guessed, told = guesses.errors(mu, target, frames.phones[batch.targets])
    shares = batch.weights / batch.weights.sum()  # [M]
    flow = flow_loss(model, mu, target, previous)
    return Losses(flow @ shares, stop @ shares, guessed @ shares, told @ shares)


def noisy_history(patches: Tensor, sequence_of_patch: Tensor, num_sequences: int) -> Tensor:
    """Patches [N, P, C] as the model hears them; half of the sequences with noise of a strength of their own."""
    device = patches.device
    strength = MAX_HISTORY_NOISE * torch.rand(num_sequences + 1, device=device)  # the last: of what fills up
    strength = strength * (torch.rand(num_sequences + 1, device=device) < NOISY_SEQUENCES)
    return patches + strength[sequence_of_patch].view(-1, 1, 1) * torch.randn_like(patches)


def flow_loss(model: SpeechModel, mu: Tensor, target: Tensor, previous: Tensor) -> Tensor:
    """Squared error of the velocity from data to noise; mu: [M, mu_size]; target, previous: [M, P, C]. # [M]"""
    num_rows = target.shape[0]
    times = training_times(num_rows, target.device)
    # The time token is coarse where the engine runs in bfloat16: the model learns it in both precisions.
    half = num_rows // 2
    coarse = times[:half].bfloat16()
    tokens = torch.cat((model.time_tokens(coarse).to(mu.dtype), model.time_tokens(times[half:]).to(mu.dtype)))
    times = torch.cat((coarse.float(), times[half:])).view(-1, 1, 1)
    noise = torch.randn_like(target)
    kept = torch.rand(num_rows, 1, device=mu.device) >= MU_DROP
    velocity = model.velocity(torch.lerp(target, noise, times), mu * kept, tokens, previous)
    return F.mse_loss(velocity.float(), noise - target, reduction="none").mean(dim=(1, 2))


def training_times(count: int, device: torch.device) -> Tensor:
    """Half of them uniform, half around the middle, where the velocity is hardest to guess. # [count]"""
    uniform = torch.rand(count, device=device)
    return torch.where(torch.rand(count, device=device) < 0.5, uniform, torch.randn(count, device=device).sigmoid())
