"""Attention of a block from its merged rows, in Triton against torch: rope, storing, local and paged attention."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import NamedTuple

import pytest
import torch

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.layer_ops import ALL_TOKENS, TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.rope import RopeTable

triton_layer_ops, triton_local_attention = (
    pytest.importorskip(f"voxcpm_core.kernels.{name}", reason="Triton has no build for this machine")
    for name in ("triton_layer_ops", "triton_local_attention")
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PAGE_SIZE = 16
OPS = TorchLayerOps(), triton_layer_ops.TritonLayerOps(DEVICE)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3}


def stack(num_heads: int, num_kv_heads: int, head_dim: int = 32):
    """A stack of VoxCPM2 with small heads."""
    base = ModelConfig.from_json(release_config("2")).base_lm
    rope = dataclasses.replace(base.rope, factors=base.rope.factors[: head_dim // 2])
    return dataclasses.replace(base, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, rope=rope)


class Given(NamedTuple):
    """What attention begins with."""

    x: torch.Tensor  # [..., hidden]
    norm: Norm
    weight: torch.Tensor  # [q + 2 kv, hidden]

    @classmethod
    def random(cls, config, *shape: int, dtype: torch.dtype, hidden: int = 24) -> Given:
        generator = torch.Generator().manual_seed(0)

        def randn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(DEVICE, dtype)

        sizes = torch.logspace(-1, 1, shape[-1]).to(DEVICE, dtype).unsqueeze(-1)  # that the norm makes equal
        width = config.q_size + 2 * config.kv_size
        return cls(randn(*shape, hidden) * sizes, Norm(randn(hidden), 1e-5), randn(width, hidden) * hidden**-0.5)

    def of(self, ops) -> tuple[torch.Tensor, Norm, Linear]:
        return self.x, self.norm, Linear(ops.folded(self.weight, self.norm.weight))


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "num_tokens", "dtype"),
    [
        (18, 2, 32, 11, torch.float32), (6, 2, 32, 5, torch.float32), (4, 4, 32, 19, torch.float16),
        (2, 1, 32, 1, torch.float32), (4, 2, 16, 7, torch.float32),
    ],
)  # fmt: skip
def test_local_attention(num_heads, num_kv_heads, head_dim, num_tokens, dtype, monkeypatch):
    """Also with all heads of a group in one program, as for many sequences; of all tokens, the last and the first."""
    config = stack(num_heads, num_kv_heads, head_dim)
    table = RopeTable(config.rope, num_tokens, DEVICE, dtype)
    given = Given.random(config, 3, num_tokens, dtype=dtype)
    for rotation, enough in product((None, table.at(torch.arange(num_tokens, device=DEVICE))), (1, 256)):
        monkeypatch.setattr(triton_local_attention, "ENOUGH_PROGRAMS", enough)
        for kept in (ALL_TOKENS, slice(-max(1, num_tokens // 2), None), slice(0, 1)):
            (expected, x), (found, kept_x) = (
                ops.local_attention(*given.of(ops), config, rotation, kept) for ops in OPS
            )
            assert found.shape == (3, len(range(num_tokens)[kept]), config.q_size)
            torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)
            assert torch.equal(kept_x, x)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "batch", "num_tokens", "dtype"),
    [(16, 2, 3, 1, torch.float32), (6, 2, 1, 20, torch.float32), (4, 2, 2, 1, torch.float16)],
)
@pytest.mark.parametrize("with_rope", [True, False])
def test_paged_attention_stores_and_attends(num_heads, num_kv_heads, batch, num_tokens, with_rope, dtype):
    config = stack(num_heads, num_kv_heads)
    table = RopeTable(config.rope, 128, DEVICE, dtype)
    page_table = torch.randperm(4 * batch + 1, generator=torch.Generator().manual_seed(1))[: 4 * batch]
    page_table = page_table.view(batch, 4).to(DEVICE)
    positions = torch.tensor([[30], [0], [17]], device=DEVICE)[:batch] + torch.arange(num_tokens, device=DEVICE)
    context = PagedContext(page_table, positions, int(positions.max()) + 1, PAGE_SIZE)
    rotation = table.at(positions) if with_rope else None
    given = Given.random(config, batch, num_tokens, dtype=dtype)
    before = torch.randn(2, 4 * batch + 1, PAGE_SIZE, num_kv_heads, 32, generator=torch.Generator().manual_seed(2))
    pages = [before.to(DEVICE, dtype) for _ in OPS]
    expected, found = (
        ops.paged_attention(*given.of(ops), config, rotation, own, context)
        for ops, own in zip(OPS, pages, strict=True)
    )
    torch.testing.assert_close(pages[1], pages[0], atol=TOLERANCE[dtype], rtol=0)
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)
