"""The guided Euler step in Triton against torch."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels.layer_ops import TorchLayerOps

triton_layer_ops = pytest.importorskip(
    "voxcpm_core.kernels.triton_layer_ops", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 64), (1, 2, 24)], ids=str)
def test_the_kernel_is_the_reference(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(DEVICE, dtype)
    velocity = torch.randn(2 * shape[0], *shape[1:], generator=generator).to(DEVICE, dtype)
    if dtype == torch.float32:  # half precision has no room for the small number that keeps the scale finite
        velocity[-1] = 0  # nothing to guide away from
    cfg_value = torch.tensor([2.0, 1.7, 1.0], device=DEVICE)[: shape[0]]
    step = torch.tensor(0.13, device=DEVICE, dtype=dtype)
    both = TorchLayerOps(), triton_layer_ops.TritonLayerOps(DEVICE)
    expected, found = (ops.guided_step(x, velocity, cfg_value, step) for ops in both)
    assert torch.isfinite(expected).all()
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)
