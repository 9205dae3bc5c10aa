"""The card that is measured, its limits, and the versions that a result holds for."""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch


class Card(NamedTuple):
    """Peaks by the vendor's data sheets."""

    gb_per_s: float  # of its memory
    tf_per_s: float  # dense, 16-bit


CARDS = {"NVIDIA H100 80GB HBM3": Card(3350.0, 989.0), "NVIDIA H200": Card(4800.0, 989.0)}
UNKNOWN = Card(float("nan"), float("nan"))


def this_card() -> Card:
    """Not a number where the card is not in the table."""
    return CARDS.get(torch.cuda.get_device_name(), UNKNOWN)


def describe() -> dict[str, str]:
    import triton

    return {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
    }
