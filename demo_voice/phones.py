"""Which phone is spoken when. The model learns to tell it, to find out early which text belongs to which sound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Phones = npt.NDArray[np.uint8]

PHONES = [
    "pau", "aa", "ae", "ah", "ao", "aw", "ax", "ay", "b", "ch", "d", "dh", "eh", "er", "ey", "f", "g", "hh", "ih", "iy",
    "jh", "k", "l", "m", "n", "ng", "ow", "oy", "p", "r", "s", "sh", "t", "th", "uh", "uw", "v", "w", "y", "z", "zh",
]
PHONE_FRAME_SAMPLES = 320
_NUMBER_OF_PHONE = {phone: number for number, phone in enumerate(PHONES)}


class Segments(NamedTuple):
    """The phones of an utterance, one after the other."""

    phones: Phones  # [n], numbers in PHONES
    ends_s: npt.NDArray[np.float64]  # [n], rising


def parse_segments(text: str) -> Segments:
    """flite's list of `phone:end`, in seconds. Raises KeyError or ValueError for anything else."""
    pairs = [entry.split(":") for entry in text.split()]
    numbers = np.array([_NUMBER_OF_PHONE[phone] for phone, _ in pairs], np.uint8)
    return Segments(numbers, np.array([float(end) for _, end in pairs]))


def phones_at(segments: Segments, times_s: npt.NDArray[np.float64]) -> Phones:
    """The phone of each moment; before the first and after the last one there is silence. # [times]"""
    index = np.searchsorted(segments.ends_s, times_s, side="right")
    found = np.append(segments.phones, np.uint8(0))[index]
    return np.where(times_s < 0, np.uint8(0), found)
