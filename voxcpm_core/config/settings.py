"""Settings of a Triton model: `parameters` of its config.pbtxt, which VOXCPM_* variables override."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from voxcpm_core.errors import ConfigError, shown
from voxcpm_core.paths import as_text

ENV_PREFIX = "VOXCPM_"
_BACKEND_PARAMETERS = frozenset({"EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS"})  # the Python backend's own


def model_parameters(model_config: str) -> dict[str, str]:
    """The parameters in Triton's JSON of a config.pbtxt, without those of the backend itself."""
    parameters = json.loads(model_config).get("parameters", {})
    return {name: value["string_value"] for name, value in parameters.items() if name not in _BACKEND_PARAMETERS}


def given_settings(kind: Any, parameters: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Values for those fields of the dataclass `kind` that are set, each of its field's type.

    Raises ConfigError for a parameter that is no field, and for a value that is not of its type.
    """
    known = {f.name: f for f in fields(kind)}
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        names = ", ".join(sorted(known))
        raise ConfigError(f"unknown parameter {shown(unknown[0])} in config.pbtxt; known: {names}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        variable = environ.get(ENV_PREFIX + name.upper())
        text = parameters.get(name, "") if variable is None else as_text(variable)
        if text != "":
            values[name] = _READERS[str(field.type)](name, text)
    return values


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}: expected an integer, got {shown(text)}") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{name}: expected a number, got {shown(text)}") from None


def _switch(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise ConfigError(f"{name}: expected 0 or 1, got {shown(text)}")
    return text == "1"


_READERS: dict[str, Callable[[str, str], Any]] = {
    "int": _integer, "float": _number, "bool": _switch, "str": lambda name, text: text,
}
