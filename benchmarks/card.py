"""The card that is measured, its limits, and what a result holds for."""

from __future__ import annotations

from typing import NamedTuple

import torch

from benchmarks.machine import describe_machine


class Card(NamedTuple):
    """Peaks by the vendor's data sheets."""

    gb_per_s: float  # of its memory
    tf_per_s: float  # dense, 16-bit, fp32 sums


CARDS = {
    "NVIDIA H100 80GB HBM3": Card(3350.0, 989.0),
    "NVIDIA H200": Card(4800.0, 989.0),
    "NVIDIA GeForce RTX 4090": Card(1008.0, 165.0),
}
UNKNOWN = Card(float("nan"), float("nan"))


def this_card() -> Card:
    """Not a number where the card is not in the table."""
    return CARDS.get(torch.cuda.get_device_name(), UNKNOWN)


def describe() -> dict[str, str]:
    """`describe_machine` with the card that torch uses."""
    return {**describe_machine(), "card": torch.cuda.get_device_name()}
