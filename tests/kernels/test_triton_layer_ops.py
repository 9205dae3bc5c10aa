"""The Triton kernels between the matrix products against torch, interpreted on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels.layer_ops import TorchLayerOps

triton_layer_ops = pytest.importorskip(
    "voxcpm_core.kernels.triton_layer_ops", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPS = 1e-5
# Half precision rounds after each operation, as the reference does: at most one unit in the last place apart.
TOLERANCE = {torch.float32: (1e-6, 1e-5), torch.float16: (1e-6, 2e-3)}

pytestmark = [
    pytest.mark.parametrize("dtype", TOLERANCE, ids=str),
    pytest.mark.parametrize("shape", [(3, 64), (2, 5, 48), (1, 1200)], ids=str),
]


def randn(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    atol, rtol = TOLERANCE[expected.dtype]
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol)


def test_norm(shape, dtype):
    x, weight = randn(*shape, dtype=dtype, seed=0), randn(shape[-1], dtype=dtype, seed=1)
    assert_same(triton_layer_ops.TritonLayerOps().norm(x, weight, EPS), TorchLayerOps().norm(x, weight, EPS))


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_sum_and_norm(scale, shape, dtype):
    x, branch = randn(*shape, dtype=dtype, seed=0), randn(*shape, dtype=dtype, seed=2)
    arguments = x, branch, scale, randn(shape[-1], dtype=dtype, seed=1), EPS
    found, expected = triton_layer_ops.TritonLayerOps().add_norm(*arguments), TorchLayerOps().add_norm(*arguments)
    assert_same(found[0], expected[0])
    assert_same(found[1], expected[1])


def test_gating(shape, dtype):
    gate_up = randn(*shape, dtype=dtype, seed=0)
    assert_same(triton_layer_ops.TritonLayerOps().swiglu(gate_up), TorchLayerOps().swiglu(gate_up))
