"""Arguments of `generate` as a SpeechRequest."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from voxcpm_core.errors import ErrorCode, RequestError
from voxcpm_core.types import Condition, FloatArray, SamplingParams, SpeechRequest

Latents = bytes | bytearray | memoryview | npt.NDArray[Any]
BYTES_PER_VALUE = 4


def speech_request(
    target_text: str,
    prompt_latents: Latents | None,
    prompt_text: str,
    max_generate_length: int | None,
    temperature: float,
    cfg_value: float,
    ref_audio_latents: Latents | None,
    seed: int | None,
    inference_timesteps: int,
    min_length: int,
    length_cap: bool,
    ignore_stop: bool,
) -> SpeechRequest:
    """A request under a fresh id. Raises RequestError for a wrong type.

    Numbers are checked against the model and its settings later, by `prepare`.
    """
    for name, text in (("target_text", target_text), ("prompt_text", prompt_text)):
        _check_str(name, text)
    return SpeechRequest(
        target_text=target_text,
        request_id=f"py-{secrets.token_hex(8)}",
        prompt_text=prompt_text,
        prompt=_condition("prompt_latents", prompt_latents),
        reference=_condition("ref_audio_latents", ref_audio_latents),
        params=SamplingParams(
            cfg_value=cfg_value,
            temperature=temperature,
            inference_timesteps=inference_timesteps,
            min_length=min_length,
            max_length=max_generate_length,
            length_cap=length_cap,
            ignore_stop=ignore_stop,
            seed=seed,
        ),
    )


def check_transcript(prompt_text: object) -> None:
    """Of a prompt that is to be kept; raises RequestError."""
    _check_str("prompt_text", prompt_text)
    if not str(prompt_text).strip():
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, "a prompt needs prompt_text, its transcript")


def _check_str(name: str, text: object) -> None:
    if not isinstance(text, str):
        raise RequestError(ErrorCode.INVALID_TEXT, f"{name}: expected a str, got {type(text).__name__}")


def _condition(name: str, latents: Latents | None) -> Condition | None:
    return None if latents is None else Condition(latents=_values(name, latents))


def _values(name: str, latents: Latents) -> FloatArray:
    """A copy; bytes become [n], which the model's width makes frames of."""
    if isinstance(latents, (bytes, bytearray, memoryview)):
        data = bytes(latents)
        if len(data) % BYTES_PER_VALUE:
            raise RequestError(ErrorCode.INVALID_LATENTS, f"{name}: {len(data)} bytes are not whole float32 values")
        return np.frombuffer(data, np.float32)
    try:
        values = np.asarray(latents)
    except (TypeError, ValueError):  # ragged lists, tensors of another device
        values = np.empty(0, dtype=object)
    if values.dtype.kind != "f":
        found = f"{type(latents).__name__} of {values.dtype}"
        raise RequestError(ErrorCode.INVALID_LATENTS, f"{name}: expected float32 bytes or array, got {found}")
    with np.errstate(over="ignore"):  # what becomes infinite is refused with the rest of it
        return values.astype(np.float32)
