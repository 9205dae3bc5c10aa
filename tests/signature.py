"""The tensors that stand in the config.pbtxt of the repository's models."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1] / "model_repository"
FOR_THE_ENSEMBLE = {"stream_id", "bitrate", "vae_context"}  # outputs of voxcpm


def signature(model: str) -> tuple[list[str], list[str]]:
    """Inputs and outputs, a line each."""
    config = (REPOSITORY / model / "config.pbtxt").read_text()
    given, made = config.split("input [")[1].split("output [")[:2]
    return re.findall(r"\{ name: .* \}", given), re.findall(r"\{ name: .* \}", made.split("\n]")[0])


def without(lines: list[str], names: set[str]) -> list[str]:
    return [each for each in lines if each.split('"')[1] not in names]
