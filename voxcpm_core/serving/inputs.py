"""A Triton request as a SpeechRequest and its output options."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from voxcpm_core.audio.encode import DEFAULT_FORMAT, FORMATS
from voxcpm_core.errors import ErrorCode, RequestError, shown
from voxcpm_core.serving.options import ENCODINGS, OutputOptions
from voxcpm_core.serving.tensors import InputTensors
from voxcpm_core.types import Condition, FloatArray, SamplingParams, SpeechRequest

NUMBERS = ("cfg_value", "temperature")
INTEGERS = ("inference_timesteps", "min_length", "max_length", "seed")
SWITCHES = ("length_cap", "ignore_stop")

DecodeAudio = Callable[[bytes], FloatArray]


@dataclass(frozen=True)
class ParsedRequest:
    """What the caller wants said, and how the answer is to look."""

    speech: SpeechRequest
    options: OutputOptions


def parse_request(
    tensors: InputTensors, request_id: str, output_names: Collection[str], decode_audio: DecodeAudio
) -> ParsedRequest:
    """Read all inputs; raises RequestError for a malformed one.

    `output_names` are the outputs that the caller named (Triton fills in all when none were). `decode_audio` turns
    a file into a mono waveform at the model's rate, last of all since it is the slow part.
    """
    options = _options(tensors, output_names)
    target_text = tensors.text("target_text")
    if target_text is None:
        raise RequestError(ErrorCode.INVALID_TEXT, "target_text is missing")
    prompt_text = tensors.text("prompt_text")
    params = _params(tensors)
    for role in ("prompt", "reference"):
        if tensors.has(f"{role}_audio") and tensors.has(f"{role}_latents"):
            raise RequestError(
                ErrorCode.CONFLICTING_INPUTS, f"{role}_audio and {role}_latents exclude each other"
            )
    speech = SpeechRequest(
        target_text=target_text,
        request_id=request_id,
        prompt_text=prompt_text or "",
        prompt=_condition(tensors, "prompt", options.base64, decode_audio),
        reference=_condition(tensors, "reference", options.base64, decode_audio),
        params=params,
        wants_audio=options.wants_audio,
    )
    return ParsedRequest(speech, options)


def _options(tensors: InputTensors, output_names: Collection[str]) -> OutputOptions:
    wants_audio = not output_names or "audio" in output_names
    stream, deadline_ms = tensors.boolean("stream"), tensors.integer("deadline_ms")
    if deadline_ms is not None and deadline_ms < 1:
        message = f"deadline_ms: expected an integer >= 1, got {shown(deadline_ms)}"
        raise RequestError(ErrorCode.INVALID_PARAMETER, message)
    return OutputOptions(
        format=tensors.choice("format", FORMATS) or DEFAULT_FORMAT,
        bitrate=tensors.integer("bitrate"),
        sample_rate=tensors.integer("sample_rate"),
        deadline_ms=deadline_ms,
        stream=True if stream is None else stream,
        base64=tensors.choice("encoding", ENCODINGS) == "base64",
        wants_audio=wants_audio,
        wants_latents=bool(tensors.boolean("return_latents")) or not wants_audio,
    )


def _params(tensors: InputTensors) -> SamplingParams:
    values: dict[str, Any] = {}
    values.update({name: tensors.number(name) for name in NUMBERS})
    values.update({name: tensors.integer(name) for name in INTEGERS})
    values.update({name: tensors.boolean(name) for name in SWITCHES})
    return SamplingParams(**{name: value for name, value in values.items() if value is not None})


def _condition(tensors: InputTensors, role: str, is_base64: bool, decode_audio: DecodeAudio) -> Condition | None:
    latents = tensors.latents(f"{role}_latents")
    if latents is not None:
        return Condition(latents=latents)
    data = tensors.audio(f"{role}_audio", is_base64)
    if data is None:
        return None
    return Condition(waveform=decode_audio(data))
