"""The noise kernel draws what the torch reference draws."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels.noise import philox_normal

triton_noise = pytest.importorskip("voxcpm_core.kernels.triton_noise", reason="Triton has no build for this machine")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("num_elements", [1, 30, 256, 1000])
def test_the_kernel_is_the_reference(num_elements):
    seeds = torch.tensor([0, 5, 2**53 - 1, 2**40 + 7, -1], device=DEVICE)
    patches = torch.tensor([0, 3, 2, 700, 1], device=DEVICE)
    found = triton_noise.triton_philox_normal(seeds, patches, num_elements)
    torch.testing.assert_close(found, philox_normal(seeds, patches, num_elements), atol=1e-6, rtol=0)
