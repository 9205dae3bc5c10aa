"""The pitch of speech, by autocorrelation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_LOWEST_HZ, _HIGHEST_HZ = 55, 420
_FRAME_S, _HOP_S = 0.04, 0.01
_VOICED = 0.6  # height of the autocorrelation's peak
_LOUD = 0.2  # of the loudest frame


def f0_hz(pcm: npt.NDArray[np.generic], sample_rate_hz: int) -> npt.NDArray[np.float64]:
    """Fundamental frequency of the voiced frames, in order; pcm is [num_samples], the result [num_voiced_frames]."""
    frame, hop = int(_FRAME_S * sample_rate_hz), int(_HOP_S * sample_rate_hz)
    audio = np.asarray(pcm, np.float64)
    if len(audio) < frame:
        return np.empty(0)
    frames = np.lib.stride_tricks.sliding_window_view(audio, frame)[::hop]
    frames = (frames - frames.mean(axis=1, keepdims=True)) * np.hanning(frame)
    power = (frames**2).sum(axis=1)
    frames = frames[power > _LOUD**2 * power.max(initial=1e-9)]
    return _peaks_hz(_autocorrelation(frames), sample_rate_hz)


def median_f0_hz(pcm: npt.NDArray[np.generic], sample_rate_hz: int) -> float:
    """Median over the voiced frames, 0 when there are none."""
    values = f0_hz(pcm, sample_rate_hz)
    return float(np.median(values)) if len(values) else 0.0


def _autocorrelation(frames: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Normalised to 1 at lag 0 and by the window's own: [num_frames, frame_samples]."""
    num_samples = frames.shape[1]
    window = np.hanning(num_samples)
    spectrum = np.fft.rfft(np.concatenate([frames, window[None]]), 2 * num_samples)
    values = np.fft.irfft(np.abs(spectrum) ** 2)[:, :num_samples]
    values = values / values[:, :1].clip(min=1e-12)
    return values[:-1] / values[-1].clip(min=1e-3)


def _peaks_hz(correlation: npt.NDArray[np.float64], sample_rate_hz: int) -> npt.NDArray[np.float64]:
    shortest, longest = sample_rate_hz // _HIGHEST_HZ, sample_rate_hz // _LOWEST_HZ
    searched = correlation[:, shortest : longest + 1]
    highest = searched.max(axis=1)
    # A period's multiples correlate as well as the period: the first lag that is nearly as good is the period.
    first = (searched > 0.9 * highest[:, None]).argmax(axis=1)
    lags = np.empty(len(searched))
    for row, start in enumerate(first):
        end = start + 1
        while end < searched.shape[1] and searched[row, end] >= searched[row, end - 1]:
            end += 1
        lags[row] = shortest + end - 1
    return sample_rate_hz / lags[highest > _VOICED]
