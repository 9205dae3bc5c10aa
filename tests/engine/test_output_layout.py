"""One memory for all outputs of a step: what the device writes there, the host finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from voxcpm_core.output_layout import OutputLayout
from voxcpm_core.runner.outputs import step_outputs

LAYOUT = OutputLayout(patch_size=3, feat_dim=5, samples_per_patch=7)


@pytest.mark.parametrize("with_audio", [True, False])
@pytest.mark.parametrize(("num_rows", "num_wanted"), [(1, 1), (6, 5), (65, 64)])
def test_the_host_finds_what_the_device_wrote(num_rows, num_wanted, with_audio):
    generator = torch.Generator().manual_seed(num_rows)
    memory = torch.zeros(LAYOUT.num_bytes(99), dtype=torch.uint8)
    made = step_outputs(LAYOUT, memory, num_rows, with_audio)
    for tensor in (made.patches, made.audio):  # each whole, so that none would survive an overlap
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    made.stop.copy_(torch.randint(2, (num_rows,), generator=generator).bool())
    assert made.num_rows == num_rows
    assert len(made.memory) == LAYOUT.num_bytes(num_rows, with_audio)
    found = LAYOUT.on_host(made.memory.clone().numpy(), num_rows, num_wanted)
    np.testing.assert_array_equal(found.latents, made.patches[:num_wanted].numpy())
    np.testing.assert_array_equal(found.stops, made.stop[:num_wanted].numpy())
    np.testing.assert_array_equal(found.audio, made.audio[:num_wanted].numpy())
    assert found.audio.shape == (num_wanted if with_audio else 0, 7)
    assert found.latents.any()
    generator.manual_seed(num_rows)
    for tensor in (made.patches, made.audio):
        np.testing.assert_array_equal(tensor.numpy(), torch.randn(tensor.shape, generator=generator).numpy())
