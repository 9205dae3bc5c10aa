"""Checks of the audio that conditions a request, as a waveform or as latents."""

from __future__ import annotations

import numpy as np

from voxcpm_core.config import ModelConfig
from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.types import Condition, FloatArray

MAX_PEAK = 100.0  # of float files; samples far outside [-1, 1] are not audio
MAX_LATENT = 1000.0  # latents of real speech stay two orders of magnitude below


def checked_condition(role: str, condition: Condition, model: ModelConfig, max_seconds: float) -> Condition:
    """The condition with its latents as [frames, feat_dim]; `role` ("prompt", "reference") stands in messages.

    Latents with a single row or column are read row-major. Raises RequestError INVALID_AUDIO, INVALID_LATENTS, or
    CONFLICTING_INPUTS when not exactly one of waveform and latents is set.
    """
    if condition.waveform is not None and condition.latents is not None:
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, f"{role}: both audio and latents are given")
    if condition.latents is not None:
        return Condition(latents=_checked_latents(role, condition.latents, model))
    if condition.waveform is not None:
        return Condition(waveform=_checked_waveform(role, condition.waveform, model, max_seconds))
    raise RequestError(ErrorCode.CONFLICTING_INPUTS, f"{role}: neither audio nor latents are given")


def _checked_latents(role: str, latents: FloatArray, model: ModelConfig) -> FloatArray:
    width, shape = model.feat_dim, latents.shape
    is_flat = latents.ndim == 1 or (latents.ndim == 2 and 1 in shape)
    if not (latents.ndim == 2 and shape[1] == width):
        if not is_flat or latents.size % width:
            raise _invalid_latents(f"{role}_latents: expected the shape [frames, {width}], got {list(shape)}")
        latents = latents.reshape(-1, width)
    num_frames = len(latents)
    if num_frames == 0 or num_frames % model.patch_size:
        raise _invalid_latents(
            f"{role}_latents: the number of frames must be a positive multiple of {model.patch_size}, got {num_frames}"
        )
    if not np.isfinite(latents).all():
        raise _invalid_latents(f"{role}_latents: a value is not finite")
    if np.abs(latents).max() > MAX_LATENT:
        raise _invalid_latents(f"{role}_latents: a value is beyond {MAX_LATENT:g}")
    return np.array(latents, np.float32, order="C")  # a copy: torch takes no read-only memory, such as bytes


def _checked_waveform(role: str, waveform: FloatArray, model: ModelConfig, max_seconds: float) -> FloatArray:
    if waveform.ndim != 1 or not waveform.size:
        raise _invalid_audio(f"{role}_audio: expected mono samples, got the shape {list(waveform.shape)}")
    if waveform.size > max_seconds * model.vae.encoder_sample_rate:
        raise _invalid_audio(f"{role}_audio is longer than {max_seconds:g} s")
    if not np.isfinite(waveform).all() or np.abs(waveform).max() > MAX_PEAK:
        raise _invalid_audio(f"{role}_audio: a sample is not finite or beyond {MAX_PEAK:g}")
    return np.array(waveform, np.float32, order="C")


def _invalid_latents(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_LATENTS, message)


def _invalid_audio(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_AUDIO, message)
