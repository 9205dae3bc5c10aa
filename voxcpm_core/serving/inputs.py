"""A Triton request as a SpeechRequest and its output options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from voxcpm_core.audio.encode import DEFAULT_FORMAT, FORMATS
from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, shown
from voxcpm_core.serving.options import ENCODINGS, OutputOptions
from voxcpm_core.serving.tensors import InputTensors
from voxcpm_core.types import Condition, SamplingParams, SpeechRequest

NUMBERS = ("cfg_value", "temperature")
INTEGERS = ("inference_timesteps", "min_length", "max_length", "seed")
SWITCHES = ("length_cap", "ignore_stop")
CONDITIONS = ("prompt_audio", "prompt_text", "prompt_latents", "reference_audio", "reference_latents")

# Stands for the audio of a file that is still to be decoded, in all checks.
AWAITED = Condition(waveform=np.zeros(1, np.float32))


@dataclass(frozen=True)
class ParsedRequest:
    """What the caller wants said, and how the answer is to look."""

    speech: SpeechRequest
    options: OutputOptions
    uploads: Mapping[str, bytes]  # "prompt", "reference": the file for the condition of that name, which is AWAITED
    normalize: bool  # the target text is still to be normalised
    retry_badcase: bool
    voice: str | None = None  # registered, in the place of prompt and reference, which `speech` then has not
    lora: str | None = None  # a registered adapter

    @property
    def is_complete(self) -> bool:
        """Whether the speech can be made as it stands."""
        return not self.uploads and not self.normalize


def parse_request(tensors: InputTensors, request_id: str, output_names: Collection[str]) -> ParsedRequest:
    """Read all inputs, and leave audio files as they are; raises RequestError for a malformed one.

    `output_names` are the outputs that the caller named (Triton fills in all when none were).
    """
    options = _options(tensors, output_names)
    retry_badcase = bool(tensors.boolean("retry_badcase"))
    if retry_badcase and options.stream:
        raise invalid_parameter("retry_badcase: what was heard cannot be made again; set stream to false")
    target_text = tensors.text("target_text")
    if target_text is None:
        raise RequestError(ErrorCode.INVALID_TEXT, "target_text is missing")
    voice = _voice(tensors)
    lora = tensors.text("lora", ErrorCode.INVALID_PARAMETER)
    prompt_text = tensors.text("prompt_text")
    params = _params(tensors)
    normalize = bool(tensors.boolean("normalize"))
    given = {role: _condition(tensors, role, options.base64) for role in ("prompt", "reference")}
    uploads = {role: data for role, data in given.items() if isinstance(data, bytes)}
    prompt, reference = (AWAITED if isinstance(each, bytes) else each for each in given.values())
    speech = SpeechRequest(
        target_text=target_text,
        request_id=request_id,
        prompt_text=prompt_text or "",
        prompt=prompt,
        reference=reference,
        params=params,
        wants_audio=options.wants_audio,
    )
    return ParsedRequest(speech, options, uploads, normalize, retry_badcase, voice, lora)


def _options(tensors: InputTensors, output_names: Collection[str]) -> OutputOptions:
    wants_audio = not output_names or "audio" in output_names
    is_chained = not wants_audio and "stream_id" in output_names
    stream, deadline_ms = tensors.boolean("stream"), tensors.integer("deadline_ms")
    if deadline_ms is not None and deadline_ms < 1:
        raise invalid_parameter(f"deadline_ms: expected an integer >= 1, got {shown(deadline_ms)}")
    return OutputOptions(
        format="mp3" if is_chained else tensors.choice("format", FORMATS) or DEFAULT_FORMAT,
        bitrate=tensors.integer("bitrate"),
        sample_rate=tensors.integer("sample_rate"),
        deadline_ms=deadline_ms,
        stream=True if stream is None else stream,
        base64=tensors.choice("encoding", ENCODINGS) == "base64",
        wants_audio=wants_audio,
        wants_latents=bool(tensors.boolean("return_latents")) or not wants_audio,
        is_chained=is_chained,
    )


def _params(tensors: InputTensors) -> SamplingParams:
    values: dict[str, Any] = {}
    values.update({name: tensors.number(name) for name in NUMBERS})
    values.update({name: tensors.integer(name) for name in INTEGERS})
    values.update({name: tensors.boolean(name) for name in SWITCHES})
    return SamplingParams(**{name: value for name, value in values.items() if value is not None})


def _voice(tensors: InputTensors) -> str | None:
    voice = tensors.text("voice", ErrorCode.INVALID_PARAMETER)
    given = [name for name in CONDITIONS if tensors.has(name)]
    if voice is not None and given:
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, f"voice and {given[0]} exclude each other")
    return voice


def _condition(tensors: InputTensors, role: str, is_base64: bool) -> Condition | bytes | None:
    """Latents, or the bytes of an audio file."""
    if tensors.has(f"{role}_audio") and tensors.has(f"{role}_latents"):
        raise RequestError(ErrorCode.CONFLICTING_INPUTS, f"{role}_audio and {role}_latents exclude each other")
    latents = tensors.latents(f"{role}_latents")
    if latents is not None:
        return Condition(latents=latents)
    return tensors.audio(f"{role}_audio", is_base64)
