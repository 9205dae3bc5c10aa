"""LayerOps in Triton against torch, interpreted on a machine without a GPU; attention and products have their own."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import LoraStack, Norm, Selection, torch_lora
from voxcpm_core.kernels.product_configs import ProductConfig
from voxcpm_core.model.transformer import LocalAttention, Transformer
from voxcpm_core.model.weights import WeightSource

triton_layer_ops = pytest.importorskip(
    "voxcpm_core.kernels.triton_layer_ops", reason="Triton has no build for this machine"
)
triton_gating = pytest.importorskip("voxcpm_core.kernels.triton_gating", reason="Triton has no build for this machine")
triton_lora = pytest.importorskip("voxcpm_core.kernels.triton_lora", reason="Triton has no build for this machine")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPS = 1e-5
# Half precision rounds after each operation, as the reference does: at most one unit in the last place apart.
TOLERANCE = {torch.float32: (1e-6, 1e-5), torch.float16: (1e-6, 2e-3)}

by_choice = pytest.mark.parametrize(
    "choice", [None, ProductConfig(16, 128, 64, 1, num_warps=4, num_stages=3)], ids=str
)
by_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def randn(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    atol, rtol = TOLERANCE[expected.dtype]
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, atol=atol, rtol=rtol)


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Sums of products in another order."""
    torch.testing.assert_close(found, expected, atol=1e-5 if expected.dtype == torch.float32 else 1e-2, rtol=0)


def folded(weight: torch.Tensor, norm_weight: torch.Tensor, **lora: LoraStack) -> Linear:
    return Linear(ops().folded(weight, norm_weight), **lora)


def ops(choice: ProductConfig | None = None):
    """With all products run with that config; None: as cuBLAS does them."""
    return triton_layer_ops.TritonLayerOps(DEVICE, lambda shape, num_rows: choice)


@by_dtype
@pytest.mark.parametrize("shape", [(3, 64), (2, 5, 48), (1, 1200)], ids=str)
def test_norm(shape, dtype):
    x, weight = randn(*shape, dtype=dtype, seed=0), randn(shape[-1], dtype=dtype, seed=1)
    assert_same(ops().norm(x, weight, EPS), TorchLayerOps().norm(x, weight, EPS))


@by_dtype
def test_products_of_cublas(dtype):
    x, residual = randn(2, 3, 64, dtype=dtype, seed=0), randn(2, 3, 48, dtype=dtype, seed=1)
    norm, weight = Norm(randn(64, dtype=dtype, seed=2), EPS), randn(48, 64, dtype=dtype, seed=3) / 8
    linear = Linear(weight)
    expected = TorchLayerOps().norm_swiglu(x, norm, linear)
    assert_near(ops().norm_swiglu(x, norm, folded(weight, norm.weight)), expected)
    expected = linear(TorchLayerOps().norm(x, *norm))
    found, is_unscaled = ops().norm_linear(x, norm, folded(weight, norm.weight), defers=False)
    assert not is_unscaled
    assert_near(found, expected)
    unscaled, is_unscaled = ops().norm_linear(x, norm, folded(weight, norm.weight), defers=True)
    assert is_unscaled
    inverse = torch.rsqrt(x.float().pow(2).mean(dim=-1, keepdim=True) + EPS)
    assert_near((unscaled.float() * inverse).to(dtype), expected)
    for scale in (1.0, 0.25):
        expected = TorchLayerOps().linear_add(x, linear, residual, scale, in_place=False)
        kept = residual.clone()
        assert_near(ops().linear_add(x, linear, kept, scale, in_place=False), expected)
        assert torch.equal(kept, residual)
        assert_near(ops().linear_add(x, linear, kept, scale, in_place=True), expected)
        assert_near(kept, expected)


@by_choice
def test_products_with_adapters(choice):
    """Of the second of three sequences, beside products that read weights in either way."""
    selection = Selection(torch.tensor([-1, 0, -1], device=DEVICE))
    x, residual = randn(3, 2, 64, dtype=torch.float32, seed=0), randn(3, 2, 48, dtype=torch.float32, seed=1)
    norm, weight = Norm(randn(64, dtype=torch.float32, seed=2), EPS), randn(48, 64, dtype=torch.float32, seed=3) / 8
    a, b = randn(1, 32, 64, dtype=torch.float32, seed=4) / 8, randn(1, 48, 16, dtype=torch.float32, seed=5) / 8
    stack = LoraStack(a, b, (24, 24), selection, triton_lora.triton_lora)
    reference = Linear(weight, lora=dataclasses.replace(stack, kernel=torch_lora))
    ours = folded(weight, norm.weight, lora=dataclasses.replace(stack, a=a * norm.weight))
    normed = TorchLayerOps().norm(x, *norm)
    deferred, is_unscaled = ops(choice).norm_linear(x, norm, ours, defers=True)
    assert is_unscaled == (choice is None)
    inverse = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + EPS) if is_unscaled else 1.0
    results = [
        (found, reference(normed), Linear(weight)(normed))
        for found in (deferred * inverse, ops(choice).norm_linear(x, norm, ours, defers=False)[0])
    ] + [
        (ops(choice).norm_swiglu(x, norm, ours), *(
            TorchLayerOps().norm_swiglu(x, norm, each) for each in (reference, Linear(weight))
        )),
    ]
    for found, expected, without in results:
        assert_near(found, expected)
        assert [torch.equal(row, other) for row, other in zip(expected, without, strict=True)] == [True, False, True]
    expected = TorchLayerOps().linear_add(x, reference, residual, 0.25, in_place=False)
    ours = Linear(weight, lora=stack)
    for in_place in (False, True):
        kept = residual.clone()
        assert_near(ops(choice).linear_add(x, ours, kept, 0.25, in_place), expected)
        assert torch.equal(kept, residual) != in_place


@by_choice
@by_dtype
def test_who_has_no_adapter_is_gated_as_by_two_kernels(choice, dtype):
    """Bit for bit; and where nobody can have one, the product is what it is without any served."""
    x, norm_weight, weight = (
        randn(*shape, dtype=dtype, seed=i) / 4 for i, shape in enumerate([(3, 2, 64), (64,), (48, 64)])
    )
    a, b = (randn(*shape, dtype=dtype, seed=4) / 8 for shape in ((1, 32, 64), (1, 48, 16)))
    served, norm = LoraStack(a, b, (24, 24), Selection(), triton_lora.triton_lora), Norm(norm_weight, EPS)
    plain, adapted = folded(weight, norm_weight), folded(weight, norm_weight, lora=served)
    assert torch.equal(ops(choice).norm_swiglu(x, norm, adapted), ops(choice).norm_swiglu(x, norm, plain))
    served.selection.select(torch.tensor([-1, 0, -1], device=DEVICE))
    found = ops(choice).norm_swiglu(x, norm, adapted)
    expected = triton_gating.swiglu(ops(choice).norm_linear(x, norm, plain, defers=False)[0])
    is_same = [torch.equal(row, other) for row, other in zip(found, expected, strict=True)]
    assert is_same == [True, False, True]


def stack(layer_ops, fp8: bool) -> Transformer:
    """Two blocks of 32 wide rows, loaded from weights that are the same each time."""
    base = ModelConfig.from_json(release_config("2")).base_lm
    config = dataclasses.replace(
        base, hidden_size=32, ffn_size=80, num_heads=2, num_kv_heads=1, head_dim=32, num_layers=2, rope=None,
        residual_scale=0.5,
    )
    layer_shapes = {
        "input_layernorm": (32,), "post_attention_layernorm": (32,), "self_attn.q_proj": (64, 32),
        "self_attn.k_proj": (32, 32), "self_attn.v_proj": (32, 32), "self_attn.o_proj": (32, 64),
        "mlp.gate_proj": (80, 32), "mlp.up_proj": (80, 32), "mlp.down_proj": (32, 80),
    }
    shapes = {f"s.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in layer_shapes.items()}
    shapes["s.norm.weight"] = (32,)
    tensors = {
        name: randn(*shape, dtype=torch.float32, seed=seed) * (shape[-1] ** -0.5 if len(shape) > 1 else 1.0)
        for seed, (name, shape) in enumerate(shapes.items())
    }
    return Transformer.load(config, WeightSource(tensors, DEVICE, torch.float32, layer_ops, fp8=fp8), "s", 8)


@by_choice
@pytest.mark.parametrize("fp8", [False, True], ids=["", "fp8"])
def test_a_stack_as_it_is_loaded_and_run(choice, fp8):
    """It writes over what it is given if it may. In float8 the norms' weights are rounded with the products'."""
    x = randn(2, 3, 32, dtype=torch.float32, seed=5)
    given = x.clone()
    attention, kept = LocalAttention(3, DEVICE), slice(-1, None)
    found = stack(ops(choice), fp8)(x, attention, kept)
    expected = stack(TorchLayerOps(), fp8=False)(x, attention, kept)
    error = float((found - expected).norm() / expected.norm())
    assert 0.005 < error < 0.1 if fp8 else error < 1e-5
    assert torch.equal(x, given)
    assert torch.equal(stack(ops(choice), fp8)(x, attention, kept, writes_over=True), found)
    assert not torch.equal(x, given)
