"""What an engine says of an adapter that it can use. No torch here."""

from __future__ import annotations

from typing import NamedTuple

from voxcpm_core.errors import RequestError, invalid_parameter


class LoraFacts(NamedTuple):
    """Of the files as they were read."""

    digest: str  # of weights and configuration
    weights_sha256: str
    rank: int
    alpha: float
    num_layers: int  # of the model that it changes


def no_loras() -> RequestError:
    """The error of whoever wants to register an adapter where none are served."""
    return invalid_parameter("adapters are not served here: VOXCPM_LORA_ROOT is not set, or VOXCPM_MAX_LORAS is 0")
