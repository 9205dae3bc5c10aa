"""Training of the AudioVAE on crops of speech: first the whole of it, then its decoder against critics.

Once the encoder is left alone the latents are what they are, so that the model can be trained on them while the decoder
still learns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from demo_voice.captured import CapturedStep
from demo_voice.schedule import SAVE_INTERVAL_S, Clock, Every, Progress, learning_rate_share
from demo_voice.vae import AudioVae
from demo_voice.vae_discriminator import Critics
from demo_voice.vae_losses import ReconstructionLoss, kl_to_normal

ADVERSARIAL_WEIGHT, MATCHING_WEIGHT = 0.03, 0.1
# What a latent value may tell, in nats. The decoder learns to put up with the rest being noise, as it must with latents
# that are generated. The weight of the divergence finds itself.
KL_TARGET = 1.5
KL_GAIN, FIRST_KL_WEIGHT, MIN_KL_WEIGHT, MAX_KL_WEIGHT = 0.01, 1e-3, 1e-5, 1.0
MAX_GRADIENT = 1.0

MIN_GAIN = 0.4  # clips are made quieter at random, as the speech that users give is
STANDARD_CLIPS = 4  # how much longer the clips are that the latents' statistics come from: fewer have just begun

# (batch size, samples, least gain) -> clips [B, samples] in [-1, 1] on the device
Clips = Callable[[int, int, float], Tensor]


@dataclass(frozen=True)
class VaeSettings:
    """How large a step is."""

    batch_size: int
    clip_frames: int  # latents of a crop
    learning_rate: float


class VaeTrainer:
    """One AudioVAE, its critics and their optimisers."""

    def __init__(self, vae: AudioVae, settings: VaeSettings, clips: Clips, refines: bool = False) -> None:
        """`refines`: the encoder stays as it is, and critics teach the decoder. They would too easily tell one apart
        that has just begun."""
        device = next(vae.parameters()).device
        self._vae, self._settings, self._clips, self._refines = vae, settings, clips, refines
        self._num_samples = settings.clip_frames * vae.config.hop_length
        self._reconstruction = ReconstructionLoss(vae.config.sample_rate, device)
        self._critics = Critics().to(device)
        self._on_cuda = device.type == "cuda"
        self._rate = torch.tensor(settings.learning_rate, device=device)  # a captured step reads it where it is
        self._kl_weight = torch.tensor(FIRST_KL_WEIGHT, device=device)
        self._trained = list((vae.decoder if refines else vae).parameters())
        self._optimizer = self._new_optimizer(self._trained)
        self._critic_optimizer = self._new_optimizer(list(self._critics.parameters()))
        self._autocast = torch.autocast(device.type, torch.bfloat16, enabled=self._on_cuda)

    def _new_optimizer(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters, self._rate, (0.8, 0.99),
            weight_decay=0.0, fused=self._on_cuda, foreach=False, capturable=self._on_cuda,
        )

    def run(self, clock: Clock, save: Callable[[], None], max_steps: int | None = None) -> dict[str, float]:
        """Train until the clock is up, or for `max_steps`; `save` is called now and then, and at the end also when an
        error or a signal ends the training. Returns the last step's losses.
        """
        try:
            return self._run(clock, save, max_steps)
        finally:
            if not self._refines:
                self.standardize()
            save()

    def _run(self, clock: Clock, save: Callable[[], None], max_steps: int | None) -> dict[str, float]:
        progress, saving = Progress("decoder" if self._refines else "vae", clock), Every(SAVE_INTERVAL_S)
        losses: Mapping[str, Tensor] = {}
        run_step: Callable[[Tensor], Mapping[str, Tensor]] = self.step
        if self._on_cuda:
            run_step = CapturedStep(self.step, self.crops())
        step = 0
        while (fraction := clock.fraction) < 1.0 and step != max_steps:
            self._rate.fill_(self._settings.learning_rate * learning_rate_share(fraction))
            losses = run_step(self.crops())
            step += 1
            if progress.due():
                progress.line(step, _numbers(losses))
            if saving.due():
                save()
        if losses:
            progress.line(step, _numbers(losses))
        return _numbers(losses)

    def crops(self) -> Tensor:
        """What a step trains on. # [batch_size, num_samples]"""
        return self._clips(self._settings.batch_size, self._num_samples, MIN_GAIN)

    def step(self, original: Tensor) -> dict[str, Tensor]:
        """One step of the VAE, and one of the critics if they teach; losses as they were before it, without their
        history."""
        with torch.set_grad_enabled(not self._refines):
            mean, log_variance = self._vae.encode(original)
            latents = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        decoded = self._vae.decode(latents)
        losses = {"reconstruction": self._reconstruction(decoded, original), "kl": kl_to_normal(mean, log_variance)}
        total = losses["reconstruction"]
        if self._refines:
            losses["critic"] = self._critic_step(decoded.detach(), original)
            with self._autocast:
                adversarial, losses["matching"] = self._critics.decoder_loss(decoded, original)
            total = total + ADVERSARIAL_WEIGHT * adversarial + MATCHING_WEIGHT * losses["matching"]
        else:
            total = total + self._kl_weight * losses["kl"]
        self._optimizer.zero_grad(set_to_none=True)
        total.backward()
        _apply(self._optimizer, self._trained)
        excess = torch.nan_to_num(losses["kl"].detach() - KL_TARGET).clamp(-1.0, 1.0)
        self._kl_weight.mul_(torch.exp(KL_GAIN * excess)).clamp_(MIN_KL_WEIGHT, MAX_KL_WEIGHT)
        return {name: loss.detach() for name, loss in losses.items()}

    def _critic_step(self, decoded: Tensor, original: Tensor) -> Tensor:
        with self._autocast:
            loss = self._critics.critic_loss(decoded, original)
        self._critic_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        _apply(self._critic_optimizer, list(self._critics.parameters()))
        return loss

    @torch.no_grad()
    def standardize(self, num_batches: int = 8) -> None:
        """Give the latents mean 0 and variance 1 over a sample of the speech at its own loudness."""
        num_samples = STANDARD_CLIPS * self._num_samples
        clips = (self._clips(self._settings.batch_size, num_samples, 1.0) for _ in range(num_batches))
        means = torch.cat([self._vae.encode(clip)[0] for clip in clips])  # [B, C, T]
        self._vae.standardize(means.mean(dim=(0, 2)), means.std(dim=(0, 2)).clamp(min=1e-3))


def _apply(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> None:
    norm = torch.nn.utils.clip_grad_norm_(parameters, MAX_GRADIENT)
    # A step that overflowed must not poison the weights; deciding on the device keeps the queue full.
    finite = torch.isfinite(norm)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = torch.where(finite, parameter.grad, 0.0)
    optimizer.step()


def _numbers(losses: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in losses.items()}
