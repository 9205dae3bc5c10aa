"""A small critic on complex spectra of three resolutions, which takes the buzz out of the decoder's voice."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WINDOWS = (256, 512, 1024)  # samples
CHANNELS = 24


class SpectrumCritic(nn.Module):
    """Judges the pieces of one spectrogram; also gives the features of each layer."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(
            norm(nn.Conv2d(2 if index == 0 else CHANNELS, CHANNELS, (7, 3), (stride, 1), (3, 1)))
            for index, stride in enumerate((1, 4, 4, 2))
        )
        self.verdict = norm(nn.Conv2d(CHANNELS, 1, 3, padding=1))

    def forward(self, clips: Tensor) -> list[Tensor]:
        """[B, N] -> the layers' features, the verdict last."""
        shape = torch.hann_window(self.window, device=clips.device)
        spectrum = torch.stft(
            clips.float(), self.window, self.window // 4, window=shape, return_complex=True, normalized=True
        )
        x = torch.view_as_real(spectrum).permute(0, 3, 1, 2)  # [B, 2, bins, frames]
        x = x.contiguous(memory_format=torch.channels_last)  # as the fast convolutions want it
        features = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.2)
            features.append(x)
        return [*features, self.verdict(x)]


class Critics(nn.Module):
    """All resolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.critics = nn.ModuleList(SpectrumCritic(window) for window in WINDOWS)

    def critic_loss(self, decoded: Tensor, original: Tensor) -> Tensor:
        """Hinge loss of telling both apart; `decoded` carries no gradient."""
        total = decoded.new_zeros(())
        for critic in self.critics:
            real, fake = critic(original)[-1].float(), critic(decoded)[-1].float()
            total = total + F.relu(1.0 - real).mean() + F.relu(1.0 + fake).mean()
        return total / len(self.critics)

    def decoder_loss(self, decoded: Tensor, original: Tensor) -> tuple[Tensor, Tensor]:
        """What the decoder pays for being recognised, and the distance of the features."""
        adversarial, matching = decoded.new_zeros(()), decoded.new_zeros(())
        for critic in self.critics:
            ours = critic(decoded)
            with torch.no_grad():
                theirs = critic(original)
            adversarial = adversarial - ours[-1].float().mean()
            for our, their in zip(ours[:-1], theirs[:-1], strict=True):
                matching = matching + F.l1_loss(our.float(), their.float()) / (their.float().abs().mean() + 1e-6)
        return adversarial / len(self.critics), matching / len(self.critics) / (len(theirs) - 1)
