"""Weights in float8: how far they are off, and products with many rows, which are rounded, too."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from voxcpm_core.kernels.fp8 import FP8, LARGEST, dequantised, quantised
from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import LoraStack, Norm, Selection, torch_lora

triton_layer_ops, triton_fp8 = (
    pytest.importorskip(f"voxcpm_core.kernels.{name}", reason="Triton has no build for this machine")
    for name in ("triton_layer_ops", "triton_fp8")
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPS = 1e-5


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_error_of_each_value_is_bound_by_itself_or_by_its_row(dtype):
    weight = randn(64, 256, seed=0, dtype=dtype) * torch.logspace(-30, 30, 64, device=DEVICE, dtype=dtype).unsqueeze(1)
    weight[5] = 0.0
    weight[6, 1:] = 0.0
    codes, scales = quantised(weight)
    assert (codes.dtype, codes.shape, scales.shape) == (FP8, weight.shape, (64,))
    found, exact = dequantised(codes, scales, torch.float64), weight.double()
    bound = torch.maximum(exact.abs() / 16, scales.double().unsqueeze(1) / 1024)
    assert ((found - exact).abs() <= bound * (1 + 1e-6)).all()
    assert torch.equal(codes[5], torch.zeros_like(codes[5]))
    assert (codes.float().abs().amax(dim=1)[weight.any(dim=1)] == LARGEST).all()


def test_every_code_is_widened_exactly():
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(4, 64).to(DEVICE)
    codes[(codes & 0x7F) == 0x7F] = 0  # not a number, which no weight is
    weight = codes.view(FP8)
    assert torch.equal(dequantised(weight, torch.ones(4, device=DEVICE), torch.float32), weight.float())


def test_a_linear_of_float8_is_one_of_what_it_stands_for():
    weight, x = randn(24, 40, seed=1), randn(3, 5, 40, seed=2)
    codes, scales = quantised(weight)
    linear = Linear(codes, scales=scales)
    torch.testing.assert_close(linear(x), F.linear(x, dequantised(codes, scales, x.dtype)), atol=1e-5, rtol=0)
    assert torch.equal(linear(x)[:1], linear(x[:1])), "a row does not depend on the others"


def test_rows_that_float8_holds_are_kept_exactly():
    codes = torch.randint(0, 0x7E, (19, 72), generator=torch.Generator().manual_seed(3)).to(torch.uint8)
    codes[:, 7] = 0x7E  # the largest
    x = codes.view(FP8).float() * 2.0 ** torch.arange(-9, 10).unsqueeze(1)
    x[::2] *= -1
    found, scales = triton_fp8.quantised_rows(x.to(DEVICE), None)
    assert torch.equal(found.float() * scales, x.to(DEVICE))
    assert torch.equal(scales.flatten().log2().cpu(), torch.arange(-9.0, 10.0))


def test_rows_are_scaled_behind_their_norm():
    x = 100 * randn(5, 48, seed=4)
    found, scales = triton_fp8.quantised_rows(x, EPS)
    normed = TorchLayerOps().norm(x, torch.ones(48, device=DEVICE), EPS)
    torch.testing.assert_close(scales.flatten(), normed.abs().amax(dim=1) / LARGEST)
    expected = (normed / scales).to(FP8).float()
    # Triton's interpreter loses the carry where rounding reaches the next power of two.
    assert (found.float() != expected).float().mean() < 0.05


@pytest.fixture
def many_rows(monkeypatch: pytest.MonkeyPatch):
    """Ops that leave all products to torch, and take it for able to scale those of float8."""
    monkeypatch.setattr(triton_layer_ops, "has_quantised_product", lambda x, linear: linear.scales is not None)
    return triton_layer_ops.TritonLayerOps(DEVICE, lambda shape, num_rows: None)


def assert_near(found: torch.Tensor, expected: torch.Tensor, limit: float) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).norm() / expected.norm()) < limit


@pytest.mark.parametrize("quantises_rows", [True, False])
def test_products_of_many_rows(quantises_rows, many_rows, monkeypatch):
    """With an adapter of the second of three sequences; alone the rounding of rows, if they are, is to be seen."""
    if not quantises_rows:
        monkeypatch.setattr(triton_layer_ops, "has_quantised_product", lambda x, linear: False)
    selection = Selection(torch.tensor([-1, 0, -1], device=DEVICE))
    dtype = torch.bfloat16 if quantises_rows and DEVICE.type == "cuda" else torch.float32  # CUDA's take no other
    x, residual, weight, a, b = (
        randn(*shape, seed=6 + i, dtype=dtype)
        for i, shape in enumerate([(3, 6, 64), (3, 6, 48), (48, 64), (1, 16, 64), (1, 48, 16)])
    )
    norm = Norm(torch.ones(64, device=DEVICE, dtype=dtype), EPS)  # its weight is part of the product's
    (codes, scales), a, b = quantised(weight / 8), a / 8, b / 8
    limit = 0.06 if quantises_rows else 1e-5
    for lora in (None, LoraStack(a, b, (48,), selection, torch_lora)):
        linear = Linear(codes, scales=scales, lora=lora)
        expected = linear(TorchLayerOps().norm(x, *norm))
        assert_near(many_rows.norm_linear(x, norm, linear, defers=False)[0], expected, limit)
        found, expected = (ops.norm_swiglu(x, norm, linear) for ops in (many_rows, TorchLayerOps()))
        assert_near(found, expected, limit * 2)
        expected = TorchLayerOps().linear_add(x, linear, residual, 0.25, in_place=False)
        for in_place in (False, True):
            kept = residual.clone()
            assert_near(many_rows.linear_add(x, linear, kept, 0.25, in_place), expected, limit)
            assert torch.equal(kept, residual) != in_place


def test_rows_are_left_alone_where_torch_cannot_scale_them():
    codes, scales = quantised(randn(48, 64, seed=9))
    linear = Linear(codes, scales=scales)
    assert not triton_fp8.has_quantised_product(randn(2, 64, seed=0), linear), "float32"
    on_cpu = torch.empty(2, 64, dtype=torch.bfloat16)
    assert not triton_fp8.has_quantised_product(on_cpu, linear), "no GPU"
