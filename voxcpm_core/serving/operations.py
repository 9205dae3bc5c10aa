"""What an instance does for the other models of its server, asked over its local socket."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from voxcpm_core.audio.encode import FORMATS
from voxcpm_core.audio.mp3 import DELAY_SAMPLES
from voxcpm_core.errors import ErrorCode, RequestError, invalid_parameter, shown
from voxcpm_core.handle import EngineHandle
from voxcpm_core.local.server import Operation
from voxcpm_core.local.status import InstanceName, status
from voxcpm_core.lora.registration import new_record
from voxcpm_core.serving.adapter import Adapter
from voxcpm_core.serving.encoding import Encoding
from voxcpm_core.types import PAD_SIDES, FloatArray
from voxcpm_core.voices.registration import register

CONTRACT_VERSION = 1
MAX_MS = 2**31 - 1
_LIMITS = (
    "max_running", "max_waiting", "max_text_tokens", "max_timesteps", "max_audio_seconds", "max_voices",
    "max_voices_mib", "max_lora_rank",
)


class Operations:
    """Thread-safe. Fields and results are those of `voxcpm_control`; audio and latents are bytes."""

    def __init__(self, name: InstanceName, engine: EngineHandle, adapter: Adapter) -> None:
        self._name = asdict(name)
        self._engine = engine
        self._adapter = adapter
        self._encoding = Encoding(engine, adapter)
        own: dict[str, Operation] = {
            "info": self._info,
            "queue": self._queue,
            "cancel": self._cancel,
            "voices": self._voices,
            "add_voice": self._add_voice,
            "remove_voice": self._remove_voice,
            "loras": self._loras,
            "register_lora": self._register_lora,
            "unregister_lora": self._unregister_lora,
            "encode": self._encode,
            "drain": self._drain,
            "told": self._told,
        }
        self.by_name: dict[str, Operation] = {op: partial(self._named, operation) for op, operation in own.items()}
        self.by_name["status"] = lambda request: status(
            name, engine, adapter.roster.num_open, adapter.drain.has_begun
        )

    def _named(self, operation: Operation, request: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._name, **operation(request)}

    def _info(self, request: Mapping[str, Any]) -> dict[str, Any]:
        model, config = self._engine.model, self._engine.config
        return {
            "contract_version": CONTRACT_VERSION,
            "package_version": importlib.metadata.version("voxcpm-triton"),
            "architecture": model.architecture,
            "sample_rate": model.vae.sample_rate,
            "encoder_sample_rate": model.vae.encoder_sample_rate,
            "feat_dim": model.feat_dim,
            "patch_size": model.patch_size,
            "patch_ms": round(1000 * model.samples_per_patch / model.vae.sample_rate, 3),
            "formats": list(FORMATS),
            "mp3_delay_samples": DELAY_SAMPLES,
            "limits": {
                **{name: getattr(config, name) for name in _LIMITS}, "max_positions": config.num_positions(model),
                "max_loras": config.num_lora_slots,
            },
        }

    def _queue(self, request: Mapping[str, Any]) -> dict[str, Any]:
        waiting = self._adapter.roster.waiting()
        return {"waiting": waiting, "depth": len(waiting)}

    def _cancel(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"cancelled": self._adapter.cancel(_text(request, "request_id"))}

    def _told(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._adapter.roster.told(request.get("left", []), request.get("taken", {}))
        if request.get("left"):
            self._adapter.look_for_departures()
        return {"over": self._adapter.roster.over(request.get("silent", []))}

    def _voices(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"voices": [record.listed() for record in self._adapter.voices.records()]}

    def _drain(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._adapter.drain.begin(_milliseconds(request, "deadline_ms"))
        return {"open": self._adapter.roster.num_open}

    def _add_voice(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._adapter.drain.require_not_begun()
        record = register(
            self._adapter.voices,
            self._engine,
            self._encoding.encode,
            name=None if request.get("name") is None else _text(request, "name"),
            prompt_text="" if request.get("prompt_text") is None else _text(request, "prompt_text"),
            audio={
                role: _later(self._adapter.decode, request[f"{role}_audio"])
                for role in PAD_SIDES if f"{role}_audio" in request
            },
            latents={role: _floats(role, request) for role in PAD_SIDES if f"{role}_latents" in request},
        )
        return record.listed()

    def _remove_voice(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = _text(request, "name")
        self._adapter.voices.remove(name)
        return {"name": name}

    def _loras(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"loras": [record.listed() for record in self._adapter.loras.records()]}

    def _register_lora(self, request: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: request.get(name) and _text(request, name) for name in ("path", "uri", "sha256")}
        record = new_record(self._adapter.loras, self._engine, _text(request, "name"), **given)
        self._adapter.loras.add(record)
        return record.listed()

    def _unregister_lora(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = _text(request, "name")
        self._adapter.loras.remove(name)
        return {"name": name}

    def _encode(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._adapter.drain.require_not_begun()
        role = request.get("role", "prompt")
        if role not in PAD_SIDES:
            raise invalid_parameter(f"role: expected one of {', '.join(PAD_SIDES)}, got {shown(role)}")
        latents = self._encoding.encode_file(request["audio"], role)
        return {
            "latents": latents.tobytes(),
            "feat_dim": latents.shape[1],
            "encoder_sample_rate": self._engine.model.vae.encoder_sample_rate,
        }


def _text(request: Mapping[str, Any], field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str):
        raise invalid_parameter(f"{field}: expected a text, got {shown(value)}")
    return value


def _milliseconds(request: Mapping[str, Any], field: str) -> int | None:
    value = request.get(field)
    if value is None or (type(value) is int and 0 <= value <= MAX_MS):
        return value
    raise invalid_parameter(f"{field}: expected an integer from 0 to {MAX_MS}, got {shown(value)}")


def _later(decode: Callable[[bytes], FloatArray], data: bytes) -> Callable[[], FloatArray]:
    return lambda: decode(data)


def _floats(role: str, request: Mapping[str, Any]) -> FloatArray:
    data = request[f"{role}_latents"]
    if len(data) % 4:
        message = f"{role}_latents: {len(data)} bytes are not whole float32 values"
        raise RequestError(ErrorCode.INVALID_LATENTS, message)
    return np.frombuffer(data, "<f4")
