"""The AudioVAE's Triton kernels against float64 in torch, interpreted on a machine without a GPU."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton", reason="Triton has no build for this machine")

from voxcpm_core.kernels import triton_vae_product
from voxcpm_core.kernels.triton_vae_conv import DepthwiseConv, LastConv, depthwise, last_conv
from voxcpm_core.kernels.triton_vae_math import TAPS, Memory
from voxcpm_core.kernels.triton_vae_product import TILES, Frames, Product, pointwise, tile_of, upsample
from voxcpm_core.kernels.triton_vae_unit import fused_unit

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OFFSET = 16  # of the state under test in a stream's row
SLOTS = (4, 1, 2)
EXACT = {"atol": 1e-5, "rtol": 1e-5}  # tensor cores sum less exactly than the interpreter


def randn(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def make_memory(batch: int, size: int) -> Memory:
    states = randn(5, OFFSET + size, seed=9)
    slots = torch.tensor(SLOTS[:batch], device=DEVICE)
    return Memory(states.index_select(0, slots), states, slots)


def past_of(memory: Memory, channels: int) -> Tensor:
    return memory.past[:, OFFSET:].unflatten(1, (-1, channels)).clone()  # [B, frames, C]


def assert_kept(memory: Memory, before: Tensor, expected: Tensor) -> None:
    """The slots of the batch hold `expected` [B, frames, C]; nothing else has changed."""
    kept = memory.states[memory.slots, OFFSET:].unflatten(1, expected.shape[1:])
    torch.testing.assert_close(kept, expected, **EXACT)
    before[memory.slots, OFFSET:] = memory.states[memory.slots, OFFSET:]
    assert torch.equal(memory.states, before)


def snaked(x: Tensor, alpha: Tensor) -> Tensor:
    return x.double() + torch.sin(alpha.double() * x.double()).square() / alpha.double()


def snake_rows(alpha: Tensor) -> Tensor:
    return torch.stack(((alpha.double() / math.pi).float(), 1 / alpha))


def make_conv(channels: int, dilation: int) -> tuple[DepthwiseConv, Tensor]:
    """And the alphas of its snake."""
    alpha = 0.5 + randn(channels, seed=1).abs()
    taps, bias = randn(int(TAPS), channels, seed=2, scale=0.5), randn(1, channels, seed=3)
    return DepthwiseConv(torch.cat((taps, bias, snake_rows(alpha))), dilation, OFFSET), alpha


def convolved(past: Tensor, x: Tensor, conv: DepthwiseConv) -> Tensor:
    extended = torch.cat((past, x), dim=1).double().transpose(1, 2)  # [B, C, frames + T]
    taps, bias = conv.params[: int(TAPS)].double(), conv.params[int(TAPS)].double()
    y = F.conv1d(extended, taps.t()[:, None], bias, dilation=conv.dilation, groups=taps.shape[1])
    return y.transpose(1, 2)


def make_product(depth: int, columns: int, repeats: int = 1) -> tuple[Product, Tensor]:
    """And its weight. The parameters repeat as they do over the frames of an upsampling."""
    weight = randn(depth, columns, seed=4, scale=depth**-0.5)
    alpha = 0.5 + randn(columns // repeats, seed=5).abs()
    rows = torch.stack([randn(columns // repeats, seed=seed) for seed in (6, 7, 8)])  # bias, scale, shift
    params = torch.cat((rows, snake_rows(alpha))).repeat(1, repeats)
    return Product(split(weight), params), weight


def finished(total: Tensor, product: Product) -> Tensor:
    """The snake of a product's sum, bias included."""
    _, scale, shift, half_turns, _ = product.params
    return snaked(total.double() * scale + shift, half_turns.double() * math.pi)


def split(x: Tensor) -> Tensor:
    high = x.half()
    return torch.stack((high, (x - high.float()).half()))


def assert_same(found: Tensor, expected: Tensor, tolerance: dict[str, float] = EXACT) -> None:
    torch.testing.assert_close(found.double(), expected.double(), **tolerance)


def test_the_snake_of_large_values():
    x, alpha = randn(1, 3, 24, scale=30.0), 0.5 + randn(24, seed=1).abs()
    params = torch.stack((torch.zeros(24), torch.ones(24), torch.zeros(24))).to(DEVICE)
    nothing = torch.zeros(2, 16, 24, device=DEVICE, dtype=torch.float16)
    product = Product(nothing, torch.cat((params, snake_rows(alpha))))
    rows = torch.zeros(2, 1, 3, 16, device=DEVICE, dtype=torch.float16)
    assert_same(pointwise(rows, product, x, out_halves=False).snake, snaked(x, alpha), {"atol": 2e-5, "rtol": 0})


@pytest.mark.parametrize(("num_frames", "dilation"), [(1, 1), (5, 9), (70, 3)])
def test_depthwise(num_frames, dilation):
    channels = 20
    conv, alpha = make_conv(channels, dilation)
    memory = make_memory(2, 6 * dilation * channels)
    past, before, x = past_of(memory, channels), memory.states.clone(), randn(2, num_frames, channels)
    out = depthwise(x, conv, memory)
    assert_same(out.float().sum(dim=0), snaked(convolved(past, x, conv), alpha))
    assert_kept(memory, before, torch.cat((past, x), dim=1)[:, -past.shape[1] :])


def test_values_beyond_fp16_stay_finite():
    conv, _ = make_conv(16, 1)
    out = depthwise(randn(1, 4, 16, scale=1e6), conv, make_memory(1, 6 * 16))
    assert torch.isfinite(out).all()
    assert out[0].max() == torch.finfo(torch.float16).max


@pytest.mark.parametrize(("has_residual", "out_halves"), [(True, False), (True, True), (False, True)])
def test_pointwise(has_residual, out_halves):
    product, weight = make_product(40, 72)
    x, residual = randn(3, 7, 40), randn(3, 7, 72, seed=1)
    out = pointwise(split(x), product, residual if has_residual else None, out_halves)
    expected = x.double() @ weight.double() + product.params[0] + (residual if has_residual else 0)
    if out_halves:
        assert out.total is None
        assert out.snake.shape == (2, 3, 8, 72)
        assert_same(out.snake.float().sum(dim=0)[:, 1:], finished(expected, product))
    else:
        assert out.total is not None
        assert_same(out.total, expected)
        assert_same(out.snake, finished(expected, product))


@pytest.mark.parametrize("num_frames", [1, 7])
def test_upsample(num_frames):
    channels, out_channels, stride = 24, 12, 5
    product, weight = make_product(2 * channels, stride * out_channels, repeats=stride)
    memory = make_memory(3, channels)
    before, x = memory.states.clone(), randn(3, num_frames, channels)
    rows = split(torch.cat((torch.full((3, 1, channels), torch.nan, device=DEVICE), x), dim=1))
    out = upsample(rows, product, out_channels, memory, OFFSET)
    full = torch.cat((past_of(memory, channels), x), dim=1)
    expected = torch.cat((full[:, :-1], full[:, 1:]), dim=2).double() @ weight.double() + product.params[0]
    assert out.total is not None
    assert_same(out.total, expected.view(3, -1, out_channels))
    assert_same(out.snake, finished(expected, product).view(3, -1, out_channels))
    assert_kept(memory, before, x[:, -1:])


@pytest.mark.parametrize(("num_frames", "out_halves"), [(70, False), (3, True)])
def test_fused_unit(num_frames, out_halves):
    channels, dilation = 20, 3
    conv, alpha = make_conv(channels, dilation)
    product, weight = make_product(channels, channels)
    memory = make_memory(2, 6 * dilation * channels)
    past, before = past_of(memory, channels), memory.states.clone()
    x, residual = randn(2, num_frames, channels), randn(2, num_frames, channels, seed=1)
    out = fused_unit(Frames(residual, x), conv, product, memory, out_halves)
    expected = residual + snaked(convolved(past, x, conv), alpha) @ weight.double() + product.params[0]
    if out_halves:
        assert_same(out.snake.float().sum(dim=0)[:, 1:], finished(expected, product))
    else:
        assert out.total is not None
        assert_same(out.total, expected)
        assert_same(out.snake, finished(expected, product))
    assert_kept(memory, before, torch.cat((past, x), dim=1)[:, -past.shape[1] :])


@pytest.mark.parametrize("num_frames", [2, 150])
def test_last_convolution(num_frames):
    channels = 12
    conv = LastConv(randn(int(TAPS), channels, seed=2, scale=0.2), randn(1, seed=3), OFFSET)
    memory = make_memory(2, 6 * channels)
    past, before, x = past_of(memory, channels), memory.states.clone(), randn(2, num_frames, channels)
    audio = last_conv(x, conv, memory)
    extended = torch.cat((past, x), dim=1)
    full = F.conv1d(extended.double().transpose(1, 2), conv.weights.double().t()[None], conv.bias.double())
    assert_same(audio, torch.tanh(full[:, 0]))
    assert_kept(memory, before, extended[:, -6:])


@pytest.mark.parametrize("columns", [256, 200])
def test_a_tile_of_many_columns(columns, monkeypatch):
    """Its columns are finished in two pieces; the last ones may not fill it."""
    monkeypatch.setattr(triton_vae_product, "tile_of", lambda *sizes: TILES[0])
    product, weight = make_product(40, columns)
    x, residual = randn(2, 70, 40), randn(2, 70, columns, seed=1)
    out = pointwise(split(x), product, residual, out_halves=False)
    expected = x.double() @ weight.double() + product.params[0] + residual
    assert_same(out.total, expected)
    assert_same(out.snake, finished(expected, product))


def test_tiles_fit_the_matrix():
    assert tile_of(1, 8192) == TILES[-1]  # one stream: all there is to do is reading the weights
    assert tile_of(256, 8192) == TILES[1]
    assert tile_of(64 * 192, 1280) == TILES[0]
    for matrix in ((64 * 3840, 64), (64 * 960, 192), (64 * 32, 1024)):  # columns, or programs, would be too few
        assert tile_of(*matrix).columns == 64
    assert tile_of(32, 1024).rows == 16
