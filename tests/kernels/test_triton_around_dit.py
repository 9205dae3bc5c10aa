"""What stands around the DiT's blocks in Triton against torch: its tokens, and the guided Euler step."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm

triton_layer_ops = pytest.importorskip(
    "voxcpm_core.kernels.triton_layer_ops", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OPS = TorchLayerOps(), triton_layer_ops.TritonLayerOps(DEVICE)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3}
MAX_BATCH = 3

by_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
by_size = pytest.mark.parametrize("patch_size", [4, 2, 9])
# the releases' features and hidden size, and such as fill no block
by_shape = pytest.mark.parametrize(("features", "hidden_size"), [(64, 1024), (12, 40)])


class Case:
    """Random inputs of a batch."""

    def __init__(self, patch_size: int, features: int, hidden_size: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)

        def randn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

        self.x = randn(MAX_BATCH, patch_size, features)
        self.in_proj = Linear(randn(hidden_size, features) * features**-0.5, randn(hidden_size))
        self.time_token, self.cond = randn(hidden_size), randn(MAX_BATCH, patch_size, hidden_size)
        self.mu = randn(MAX_BATCH, 3 * hidden_size)
        sizes = torch.logspace(-1, 1, patch_size).to(DEVICE, dtype).unsqueeze(-1)  # that the norm makes equal
        self.hidden = randn(2 * MAX_BATCH, patch_size, hidden_size) * sizes
        self.norm = Norm(randn(hidden_size), 1e-5)
        self.out_proj = Linear(randn(features, hidden_size) * hidden_size**-0.5, randn(features))
        self.cfg_value = torch.tensor([2.0, 1.7, 1.0], device=DEVICE)
        self.step = torch.tensor(0.13, device=DEVICE, dtype=dtype)

    def tokens(self, ops, mu_tokens: int, rows: slice = slice(None)) -> torch.Tensor:
        mu = self.mu[rows, : max(1, mu_tokens) * len(self.time_token)]
        return ops.dit_tokens(self.x[rows], self.in_proj, mu, mu_tokens, self.time_token, self.cond[rows])

    def stepped(self, ops, rows: slice = slice(None)) -> torch.Tensor:
        out_proj = Linear(ops.folded(self.out_proj.weight, self.norm.weight), self.out_proj.bias)
        hidden = self.hidden.unflatten(0, (2, MAX_BATCH))[:, rows].flatten(0, 1)
        return ops.guided_step(self.x[rows], hidden, self.norm, out_proj, self.cfg_value[rows], self.step)


@by_dtype
@by_shape
@by_size
@pytest.mark.parametrize("mu_tokens", [0, 2, 3])
def test_tokens(mu_tokens, patch_size, features, hidden_size, dtype):
    case = Case(patch_size, features, hidden_size, dtype)
    expected, found = (case.tokens(ops, mu_tokens) for ops in OPS)
    assert found.shape == (2 * MAX_BATCH, mu_tokens + 1 + 2 * patch_size, hidden_size)
    assert torch.equal(found[:, :-patch_size], expected[:, :-patch_size])  # nothing but x is multiplied
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)
    for i in range(MAX_BATCH):
        alone = case.tokens(OPS[1], mu_tokens, slice(i, i + 1))
        assert torch.equal(alone, found[[i, MAX_BATCH + i]])


@by_dtype
@by_shape
@by_size
def test_a_guided_step(patch_size, features, hidden_size, dtype):
    case = Case(patch_size, features, hidden_size, dtype)
    expected, found = (case.stepped(ops) for ops in OPS)
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)
    for i in range(MAX_BATCH):
        assert torch.equal(case.stepped(OPS[1], slice(i, i + 1))[0], found[i])


def test_a_step_with_nothing_to_guide_away_from():
    """Half precision has no room for the small number that keeps the scale finite."""
    case = Case(4, 64, 48, torch.float32)
    case.out_proj.bias.zero_()
    case.hidden[MAX_BATCH:] = 0
    expected, found = (case.stepped(ops) for ops in OPS)
    assert torch.isfinite(expected).all()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
