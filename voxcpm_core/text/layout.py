"""Where text, reference and prompt stand in a prefill.

    zero-shot      text… 101
    continuation   text… 101 prompt…
    reference      103 reference… 104 text… 101
    combined       103 reference… 104 text… 101 prompt…
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

AUDIO_START = 101
REFERENCE_START = 103
REFERENCE_END = 104


@dataclass(frozen=True)
class PrefillLayout:
    """One row per LM position."""

    ids: npt.NDArray[np.int64]  # [S]; 0 where a patch stands
    reference: range  # positions of the reference patches
    prompt: range  # positions of the prompt patches

    def after(self, num_known: int) -> PrefillLayout:
        """What is left behind a reference, whose patches and markers are the first so many positions."""
        assert num_known >= self.reference.stop
        prompt = range(self.prompt.start - num_known, self.prompt.stop - num_known)
        return PrefillLayout(self.ids[num_known:], range(0), prompt)


def num_prefill_positions(num_tokens: int, num_prompt_patches: int, num_reference_patches: int) -> int:
    """Length of the layout; `num_tokens` counts the audio-start marker."""
    return num_voice_positions(num_reference_patches) + num_tokens + num_prompt_patches


def num_voice_positions(num_reference_patches: int) -> int:
    """Of a reference with its markers. They stand first, so what they become does not depend on text and prompt."""
    return num_reference_patches + 2 if num_reference_patches else 0


def num_reference_patches(num_voice_positions: int) -> int:
    """Without the markers."""
    return max(0, num_voice_positions - 2)


def prefill_layout(token_ids: Sequence[int], num_prompt_patches: int, num_reference_patches: int) -> PrefillLayout:
    """Lay out a request; `token_ids` end with the audio-start marker, absent audio has no patches."""
    assert token_ids[-1] == AUDIO_START
    head: list[int] = []
    if num_reference_patches:
        head = [REFERENCE_START, *[0] * num_reference_patches, REFERENCE_END]
    ids = np.array([*head, *token_ids, *[0] * num_prompt_patches], np.int64)
    reference = range(1, 1 + num_reference_patches) if num_reference_patches else range(0)
    return PrefillLayout(ids, reference, range(len(ids) - num_prompt_patches, len(ids)))
