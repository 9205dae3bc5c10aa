"""The Triton kernel of a block's products against torch, interpreted on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels import product_configs
from voxcpm_core.kernels.fp8 import quantised
from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.product_configs import ProductConfig, Shape

triton_products = pytest.importorskip(
    "voxcpm_core.kernels.triton_products", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPS = 1e-5
# Of sums over up to 1,300 values; half precision rounds the norm in the reference, and the result.
TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.float16: (2e-2, 4e-3)}
# Blocks have 16 rows and 32 columns, a pass 64 of K.
SIZES = [(1, 64, 64), (5, 40, 72), (19, 24, 144)]


def randn(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


class Case:
    """Random inputs of a product, its reference, and the kernel on it."""

    def __init__(
        self, op: str, num_rows: int, num_columns: int, k: int, dtype: torch.dtype, fp8: bool = False
    ) -> None:
        n = num_columns * (2 if op == "norm_swiglu" else 1)
        self.shape = Shape(op, n, k, str(dtype).removeprefix("torch."), fp8)
        self.dtype = dtype
        self.x = randn(num_rows, k, dtype=dtype, seed=0)
        weight = randn(n, k, dtype=dtype, seed=1) * k**-0.5
        self.linear = Linear(weight)
        if fp8:  # rows of very different sizes, and one of zeros
            weight *= torch.logspace(-3, 1, n, device=DEVICE, dtype=dtype).unsqueeze(1)
            weight[0] = 0.0
            codes, scales = quantised(weight)
            self.linear = Linear(codes, scales=scales)
        self.residual = randn(num_rows, num_columns, dtype=dtype, seed=3)
        self.counters = triton_products.new_counters(DEVICE)

    def expected(self, scale: float) -> torch.Tensor:
        ops = TorchLayerOps()
        if self.shape.op == "linear_add":
            return ops.linear_add(self.x, self.linear, self.residual, scale, in_place=False)
        norm = Norm(torch.ones_like(self.x[0]), EPS)  # its weight is part of the product's
        if self.shape.op == "norm_swiglu":
            return ops.norm_swiglu(self.x, norm, self.linear)
        return self.linear(ops.norm(self.x, *norm))

    def found(
        self, splits: int, scale: float = 1.0, in_place: bool = False, norm_first: bool = False
    ) -> torch.Tensor:
        config = ProductConfig(16, 32, 64, splits, num_warps=4, num_stages=3, norm_first=norm_first)
        arguments = self.shape, config, self.counters, self.x, self.linear
        if self.shape.op == "linear_add":
            return triton_products.product(*arguments, residual=self.residual, scale=scale, in_place=in_place)
        return triton_products.product(*arguments, EPS)

    def check(
        self, splits: int, scale: float = 1.0, in_place: bool = False, norm_first: bool = False
    ) -> torch.Tensor:
        expected = self.expected(scale)
        found = self.found(splits, scale, in_place, norm_first)
        atol, rtol = TOLERANCE[self.dtype]
        assert found.dtype == self.dtype
        torch.testing.assert_close(found, expected, atol=atol, rtol=rtol)
        assert not self.counters.any()
        return found


@pytest.mark.parametrize("op", ["norm_linear", "norm_swiglu", "linear_add"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("dtype", "splits"), [(torch.float32, 1), (torch.float16, 2)], ids=str)
def test_products_of_all_sizes(op, size, dtype, splits):
    Case(op, *size, dtype).check(splits)


@pytest.mark.parametrize("op", ["norm_linear", "norm_swiglu", "linear_add"])
@pytest.mark.parametrize(
    ("dtype", "splits", "knows_float8"), [(torch.float32, 1, False), (torch.float16, 2, True)], ids=str
)
def test_weights_in_float8(op, dtype, splits, knows_float8, monkeypatch):
    monkeypatch.setattr(triton_products, "knows_float8", lambda device: knows_float8)
    Case(op, 19, 24, 144, dtype, fp8=True).check(splits)


def test_every_code_of_float8_is_widened_exactly():
    codes = torch.arange(256, device=DEVICE, dtype=torch.int32).to(torch.uint8).view(8, 32)
    codes[(codes & 0x7F) == 0x7F] = 0  # not a number, which no weight is
    linear = Linear(codes.view(torch.float8_e4m3fn), scales=torch.ones(8, device=DEVICE))
    config = ProductConfig(16, 16, 32, 1, num_warps=4, num_stages=3)
    shape = Shape("norm_linear", 8, 32, "float32", fp8=True)
    for knows_float8 in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(triton_products, "knows_float8", lambda device, knows=knows_float8: knows)
            found = triton_products.product(
                shape, config, triton_products.new_counters(DEVICE), torch.eye(32, device=DEVICE), linear
            )
        assert torch.equal(found, linear.weight.float().t())


@pytest.mark.parametrize("op", ["norm_linear", "norm_swiglu", "linear_add"])
def test_any_number_of_splits_leaves_the_counters_at_zero(op):
    case = Case(op, 17, 20, 160, torch.float32)
    for splits in (1, 2, 3, 4):  # three passes over K: of four splits one has none
        case.check(splits)


@pytest.mark.parametrize("op", ["norm_linear", "norm_swiglu"])
@pytest.mark.parametrize(("size", "splits"), [((19, 24, 144), 2), ((5, 24, 1300), 1)], ids=str)
def test_squares_summed_before(op, size, splits):
    Case(op, *size, torch.float32).check(splits, norm_first=True)


@pytest.mark.parametrize("op", ["norm_linear", "norm_swiglu"])
def test_a_norm_of_its_own_where_a_program_has_many_rows(op, monkeypatch):
    monkeypatch.setattr(product_configs, "MAX_ROWS_BEFORE", 8)
    Case(op, 19, 24, 144, torch.float32).check(2, norm_first=True)


@pytest.mark.parametrize("splits", [1, 2])
def test_a_scaled_branch(splits):
    Case("linear_add", 5, 20, 96, torch.float32).check(splits, scale=0.25)


@pytest.mark.parametrize("splits", [1, 2])
def test_a_sum_in_place(splits):
    case = Case("linear_add", 19, 20, 96, torch.float32)
    assert case.check(splits, in_place=True) is case.residual


def test_leading_dimensions_and_gaps_do_not_matter():
    case = Case("linear_add", 6, 20, 64, torch.float32)
    expected = case.check(2)
    case.x, case.residual = case.x.repeat(1, 2)[:, :64].unflatten(0, (2, 3)), case.residual.unflatten(0, (2, 3))
    assert torch.equal(case.found(2), expected.unflatten(0, (2, 3)))
