"""What Triton loads: `voxcpm_control` and `voxcpm_encode`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from voxcpm_core.config.settings import model_parameters
from voxcpm_core.control.instances import SLOW_S, least_loaded, reached
from voxcpm_core.control.operations import Control
from voxcpm_core.control.settings import ControlConfig
from voxcpm_core.control.unary import UnaryModel, Work
from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter
from voxcpm_core.serving.options import ENCODINGS
from voxcpm_core.serving.responses import NamedTensor
from voxcpm_core.serving.tensors import InputTensors
from voxcpm_core.types import PAD_SIDES


def start_control(args: Mapping[str, str], pb_utils: Any, environ: Mapping[str, str]) -> UnaryModel:
    """`args` are those of Triton's `initialize`; the stub's parent is the tritonserver. Raises ConfigError."""
    config = ControlConfig.from_settings(model_parameters(args["model_config"]), environ)
    control = Control(config, os.getppid(), environ)

    def read(tensors: InputTensors) -> Work:
        request = tensors.data("request", ErrorCode.INVALID_PARAMETER)
        if request is None:
            raise invalid_parameter("request is missing")
        return lambda: [("response", _bytes(json.dumps(control.answer(request)).encode()))]

    return UnaryModel(pb_utils, read)


def start_encode(args: Mapping[str, str], pb_utils: Any, environ: Mapping[str, str]) -> UnaryModel:
    """As `start_control`; it has no settings."""
    return UnaryModel(pb_utils, _read_audio)


def _read_audio(tensors: InputTensors) -> Work:
    is_base64 = tensors.choice("encoding", ENCODINGS) == "base64"
    audio = tensors.audio("audio", is_base64)
    if audio is None:
        raise RequestError(ErrorCode.INVALID_AUDIO, "audio is missing")
    role = tensors.choice("role", tuple(PAD_SIDES)) or "prompt"
    model = tensors.text("model", ErrorCode.INVALID_PARAMETER)
    return lambda: _encode(audio, role, model)


def _encode(audio: bytes, role: str, model: str | None) -> list[NamedTensor]:
    with reached(os.getppid(), model=model) as instances:
        answer = least_loaded(instances).ask("encode", SLOW_S, audio=audio, role=role)
    latents = np.frombuffer(answer["latents"], "<f4").reshape(-1, answer["feat_dim"])
    return [("latents", latents), ("sample_rate", np.array([answer["encoder_sample_rate"]], np.int32))]


def _bytes(value: bytes) -> Any:
    return np.array([value], dtype=np.object_)
