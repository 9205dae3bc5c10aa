"""How far a decoded clip is from the original: spectra in several resolutions, mel bands and the waveform."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

WINDOWS = (128, 256, 512, 1024, 2048)  # samples
MEL_WINDOW, MEL_BANDS = 1024, 80
LOG_FLOOR = 1e-5
WAVEFORM_WEIGHT = 1.0
MEL_WEIGHT = 2.0
KL_WEIGHT = 1e-3


def magnitudes(clips: Tensor, window: int) -> Tensor:
    """[B, N] -> [B, window / 2 + 1, frames], a quarter window apart."""
    shape = torch.hann_window(window, device=clips.device)
    spectrum = torch.stft(clips, window, window // 4, window=shape, return_complex=True, pad_mode="constant")
    # The root of zero has no gradient.
    return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt()


def mel_filters(sample_rate: int, window: int, num_bands: int) -> Tensor:
    """Triangles that are evenly spaced on the mel scale. # [bands, window / 2 + 1]"""
    top = 2595.0 * torch.log10(torch.tensor(1.0 + sample_rate / 2 / 700.0))
    edges = 700.0 * (10.0 ** (torch.linspace(0.0, float(top), num_bands + 2) / 2595.0) - 1.0)  # Hz
    frequencies = torch.linspace(0.0, sample_rate / 2, window // 2 + 1)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0.0)


class ReconstructionLoss:
    """Sum of the spectral, mel and waveform distances."""

    def __init__(self, sample_rate: int, device: torch.device) -> None:
        self._filters = mel_filters(sample_rate, MEL_WINDOW, MEL_BANDS).to(device)

    def __call__(self, decoded: Tensor, original: Tensor) -> Tensor:
        """Both [B, N] in [-1, 1]; the distance is 0 only for equal clips."""
        total = WAVEFORM_WEIGHT * F.l1_loss(decoded, original)
        for window in WINDOWS:
            ours, theirs = magnitudes(decoded, window), magnitudes(original, window)
            total = total + _log_distance(ours, theirs) + (ours - theirs).norm() / (theirs.norm() + LOG_FLOOR)
            if window == MEL_WINDOW:
                total = total + MEL_WEIGHT * _log_distance(self._filters @ ours, self._filters @ theirs)
        return total


def _log_distance(ours: Tensor, theirs: Tensor) -> Tensor:
    return F.l1_loss((ours + LOG_FLOOR).log10(), (theirs + LOG_FLOOR).log10())


def kl_to_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Divergence from the standard normal, per latent value."""
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).mean()
