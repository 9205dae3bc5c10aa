"""How far a decoded clip is from the original, in mel bands of several resolutions and a little in its waveform."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# Samples of a window, and mel bands: those weigh frequencies as a listener does, and average over the noise of speech
# that nobody could predict.
RESOLUTIONS = ((128, 10), (256, 20), (512, 40), (1024, 80), (2048, 160))
AMPLITUDE_FLOOR = 1e-4  # of full scale
MEL_WEIGHT, WAVEFORM_WEIGHT = 1.0, 1.0


def amplitudes(clips: Tensor, window: int) -> Tensor:
    """[B, N] -> [B, window / 2 + 1, frames], a quarter window apart; a sine of full scale has 1."""
    shape = torch.hann_window(window, device=clips.device)
    spectrum = torch.stft(clips, window, window // 4, window=shape, return_complex=True, pad_mode="constant")
    # The root of zero has no gradient.
    return (spectrum.real.square() + spectrum.imag.square() + 1e-9).sqrt() * (4.0 / window)


def mel_filters(sample_rate: int, window: int, num_bands: int) -> Tensor:
    """Triangles that are evenly spaced on the mel scale. # [bands, window / 2 + 1]"""
    top = 2595.0 * torch.log10(torch.tensor(1.0 + sample_rate / 2 / 700.0))
    edges = 700.0 * (10.0 ** (torch.linspace(0.0, float(top), num_bands + 2) / 2595.0) - 1.0)  # Hz
    frequencies = torch.linspace(0.0, sample_rate / 2, window // 2 + 1)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0.0)


class ReconstructionLoss:
    """Mean of the mel distances, in factors of e, plus the waveform's distance."""

    def __init__(self, sample_rate: int, device: torch.device) -> None:
        self._filters = {
            window: mel_filters(sample_rate, window, num_bands).to(device) for window, num_bands in RESOLUTIONS
        }

    def __call__(self, decoded: Tensor, original: Tensor) -> Tensor:
        """Both [B, N] in [-1, 1]; the distance is 0 only for equal clips."""
        total = WAVEFORM_WEIGHT * F.l1_loss(decoded, original)
        for window, filters in self._filters.items():
            ours, theirs = (_log_mel(amplitudes(clips, window), filters) for clips in (decoded, original))
            total = total + MEL_WEIGHT / len(self._filters) * F.l1_loss(ours, theirs)
        return total


def _log_mel(spectrum: Tensor, filters: Tensor) -> Tensor:
    return (filters @ spectrum + AMPLITUDE_FLOOR).log()


def kl_to_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Divergence from the standard normal, per latent value."""
    return 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).mean()
