"""The ensemble `voxcpm_mp3`, which takes less than `voxcpm` does, and whose only format is mp3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voxcpm_client.errors import InvalidParameter

ENSEMBLE = "voxcpm_mp3"
DEFAULT_FORMAT = "pcm_s16le"
_ENSEMBLE_FORMAT = "mp3"
_WITHOUT = ("sample_rate", "retry_badcase", "return_latents")


def format_from(model: str, options: Mapping[str, Any]) -> str:
    """The format in which `model` answers a request with these options."""
    return options.get("format") or (_ENSEMBLE_FORMAT if model == ENSEMBLE else DEFAULT_FORMAT)


def options_for(model: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of the options `model` is told. Raises InvalidParameter for what the ensemble cannot do."""
    if model != ENSEMBLE:
        return options
    if format_from(model, options) != _ENSEMBLE_FORMAT:
        raise InvalidParameter(f"format: {model} gives {_ENSEMBLE_FORMAT}, not {options['format']!r}; voxcpm gives all")
    for name in _WITHOUT:
        if options.get(name):
            raise InvalidParameter(f"{name}: {model} does not have it; voxcpm does")
    return {name: value for name, value in options.items() if name not in ("format", *_WITHOUT)}
