"""Mel spectrograms of source and synthesis, one above the other, as a PNG."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt

from demo_voice.flite import SAMPLE_RATE_HZ, Pcm

matplotlib.use("Agg")  # draws without a display

_WINDOW, _HOP = 512, 128
_NUM_MELS = 80
_FLOOR_DB = -80.0


def draw(path: Path, text: str, source: Pcm, made: Pcm) -> None:
    """Write the picture of one sentence's source speech above its synthesis, on one time axis."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
    for axis, title, pcm in zip(axes, ("source (flite)", "demo checkpoint"), (source, made), strict=True):
        axis.imshow(
            mel_db(pcm), origin="lower", aspect="auto", cmap="magma", vmin=_FLOOR_DB, vmax=0,
            extent=(0, len(pcm) / SAMPLE_RATE_HZ, 0, _NUM_MELS),
        )
        axis.set(ylabel="mel band", title=title)
    axes[1].set(xlabel="seconds", xlim=(0, max(len(source), len(made)) / SAMPLE_RATE_HZ))
    figure.suptitle(text)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


def mel_db(pcm: Pcm) -> npt.NDArray[np.float64]:
    """Mel spectrogram in dB below its maximum: [_NUM_MELS, frames]."""
    audio = np.pad(pcm.astype(np.float64), _WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(audio, _WINDOW)[::_HOP] * np.hanning(_WINDOW)
    power = np.abs(np.fft.rfft(frames)) ** 2
    mel = _mel_filters() @ power.T
    return 10 * np.log10(np.maximum(mel / mel.max(), 10 ** (_FLOOR_DB / 10)))


def _mel_filters() -> npt.NDArray[np.float64]:
    """Triangles that overlap by half: [_NUM_MELS, _WINDOW // 2 + 1]."""
    edges_mel = np.linspace(0, _mel(SAMPLE_RATE_HZ / 2), _NUM_MELS + 2)
    edges_hz = 700 * (10 ** (edges_mel / 2595) - 1)
    bins_hz = np.linspace(0, SAMPLE_RATE_HZ / 2, _WINDOW // 2 + 1)
    low, middle, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    return np.maximum(0, np.minimum((bins_hz - low) / (middle - low), (high - bins_hz) / (high - middle)))


def _mel(frequency_hz: float) -> float:
    return float(2595 * np.log10(1 + frequency_hz / 700))
