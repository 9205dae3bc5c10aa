"""Requests to the models `voxcpm_control` and `voxcpm_encode`, and what their answers hold."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from tritonclient.grpc import InferResult, service_pb2

from voxcpm_client.errors import StreamBroken
from voxcpm_client.request import add_audio, add_text, audio_bytes
from voxcpm_client.types import AudioFile, FloatArray, Lora, Voice

CONTROL_MODEL, ENCODE_MODEL = "voxcpm_control", "voxcpm_encode"


def control_request(op: str, model: str, token: str | None, values: Mapping[str, Any]) -> service_pb2.ModelInferRequest:
    """`values` are the fields of the operation; None counts as not given, but for `model`: there it is every model."""
    given = {name: value for name, value in values.items() if value is not None or name == "model"}
    known = {"model": model, "token": token}
    body = {"op": op, **{name: value for name, value in known.items() if value is not None}, **given}
    request = service_pb2.ModelInferRequest(model_name=CONTROL_MODEL)
    add_text(request, "request", json.dumps(body))
    return request


def encode_request(audio: AudioFile, role: str, model: str) -> service_pb2.ModelInferRequest:
    """Raises OSError for a file that cannot be read."""
    request = service_pb2.ModelInferRequest(model_name=ENCODE_MODEL)
    add_audio(request, "audio", audio)
    add_text(request, "role", role)
    add_text(request, "model", model)
    return request


def voice_fields(
    name: str | None,
    prompt_audio: AudioFile | None,
    prompt_text: str | None,
    prompt_latents: FloatArray | None,
    reference_audio: AudioFile | None,
    reference_latents: FloatArray | None,
) -> dict[str, Any]:
    """The fields of `add_voice`. Raises OSError for a file that cannot be read."""
    values: dict[str, Any] = {"name": name, "prompt_text": prompt_text}
    for part, audio in (("prompt_audio", prompt_audio), ("reference_audio", reference_audio)):
        if audio is not None:
            values[f"{part}_base64"] = base64.b64encode(audio_bytes(audio)).decode()
    for part, latents in (("prompt_latents", prompt_latents), ("reference_latents", reference_latents)):
        if latents is not None:
            values[f"{part}_base64"] = base64.b64encode(np.asarray(latents, "<f4").tobytes()).decode()
    return values


def read_control(response: service_pb2.ModelInferResponse) -> dict[str, Any]:
    """The answer of `voxcpm_control`. Raises StreamBroken for anything but a JSON object."""
    try:
        answer = json.loads(_array(response, "response")[0])
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise StreamBroken(f"the answer of {CONTROL_MODEL} is not a JSON object")
    return answer


def read_latents(response: service_pb2.ModelInferResponse) -> FloatArray:
    """[frames, feat_dim]"""
    latents: FloatArray = _array(response, "latents")
    return latents


def read_voice(values: Mapping[str, Any]) -> Voice:
    """What a later server tells more of a voice is left alone."""
    return Voice(**{each.name: values[each.name] for each in fields(Voice)})


def read_lora(values: Mapping[str, Any]) -> Lora:
    """Likewise."""
    return Lora(**{each.name: values[each.name] for each in fields(Lora)})


def _array(response: service_pb2.ModelInferResponse, name: str) -> Any:
    array = InferResult(response).as_numpy(name)
    if array is None:
        raise StreamBroken(f"the server's output {name!r} is missing")
    return array
