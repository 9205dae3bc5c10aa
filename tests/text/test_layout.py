"""The four layouts of a prefill."""

from __future__ import annotations

import pytest

from voxcpm_core.text.layout import num_prefill_positions, prefill_layout

TEXT = (7, 8, 101)


@pytest.mark.parametrize(
    ("num_prompt", "num_reference", "ids", "prompt", "reference"),
    [
        (0, 0, [7, 8, 101], [], []),
        (2, 0, [7, 8, 101, 0, 0], [3, 4], []),
        (0, 3, [103, 0, 0, 0, 104, 7, 8, 101], [], [1, 2, 3]),
        (2, 1, [103, 0, 104, 7, 8, 101, 0, 0], [6, 7], [1]),
    ],
)
def test_layout(num_prompt, num_reference, ids, prompt, reference):
    layout = prefill_layout(TEXT, num_prompt, num_reference)
    assert layout.ids.tolist() == ids
    assert list(layout.prompt) == prompt
    assert list(layout.reference) == reference
    assert num_prefill_positions(len(TEXT), num_prompt, num_reference) == len(ids)
