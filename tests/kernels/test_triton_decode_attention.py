"""A decode step's attention as one Triton kernel against torch, interpreted on a machine without a GPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.layer_ops import TorchLayerOps, store_and_attend
from voxcpm_core.kernels.paged_attention import PagedContext, paged_attention
from voxcpm_core.model.rope import RopeTable

decode, triton_products = (
    pytest.importorskip(f"voxcpm_core.kernels.{name}", reason="Triton has no build for this machine")
    for name in ("triton_decode_attention", "triton_products")
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MAX_KEYS, EPS = 640, 1e-5  # as many keys as five splits take
CONTEXTS = (0, 1, 128, 129, 300, 639)  # keys that were there before
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3}


def stack(num_heads: int, num_kv_heads: int, head_dim: int):
    base = ModelConfig.from_json(release_config("2")).base_lm
    rope = dataclasses.replace(base.rope, factors=base.rope.factors[: head_dim // 2])
    return dataclasses.replace(base, num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, rope=rope)


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@dataclasses.dataclass
class Batch:
    """One sequence for each of the contexts, in pages that no other has."""

    config: object
    dtype: torch.dtype = torch.float32
    page_size: int = 16
    with_rope: bool = True
    contexts: tuple[int, ...] = CONTEXTS

    def __post_init__(self) -> None:
        config, count = self.config, len(self.contexts)
        per_row = -(-MAX_KEYS // self.page_size)
        order = torch.randperm(count * per_row + 3, generator=torch.Generator().manual_seed(1))
        self.table = order[: count * per_row].view(count, per_row).to(DEVICE)
        self.positions = torch.tensor(self.contexts, device=DEVICE)[:, None]
        self.pages = randn(
            2, len(order), self.page_size, config.num_kv_heads, config.head_dim, seed=2, dtype=self.dtype
        )
        for row, context in enumerate(self.contexts):  # what nobody has written must not show, nor weigh zero
            unwritten = torch.arange(context, per_row * self.page_size, device=DEVICE)
            self.pages[:, self.table[row][unwritten // self.page_size], unwritten % self.page_size] = float("nan")
        self.qkv = randn(count, 1, config.q_size + 2 * config.kv_size, seed=3, dtype=self.dtype)
        self.rope = RopeTable(config.rope, MAX_KEYS, DEVICE, self.dtype) if self.with_rope else None

    def rows(self, index: slice | list[int]) -> tuple[Tensor, object, PagedContext]:
        """qkv, rotation and context of those."""
        positions = self.positions[index]
        context = PagedContext(self.table[index], positions, int(positions.max()) + 1, self.page_size)
        return self.qkv[index], self.rope and self.rope.at(positions), context

    def expected(self) -> tuple[Tensor, Tensor]:
        """The result, and the pages afterwards, of torch."""
        qkv, rotation, context = self.rows(slice(None))
        pages = self.pages.clone()
        return store_and_attend(qkv, self.config, rotation, pages, context, paged_attention), pages

    def found(self, splits: int, index: slice | list[int] = slice(None), x: Tensor | None = None):
        """Likewise, of the kernel, for those rows, their keys shared out over so many programs."""
        qkv, rotation, context = self.rows(index)
        pages, counters = self.pages.clone(), triton_products.new_counters(DEVICE)
        num_programs = len(qkv) * self.config.num_kv_heads
        num_processors = splits * num_programs
        if self.page_size == 16:
            assert decode.splits_for(num_programs, MAX_KEYS, num_processors).count == splits
        out = decode.decode_attention(qkv, x, EPS, self.config, rotation, pages, context, counters, num_processors)
        assert out.dtype == self.dtype
        assert not counters.any()
        return out, pages


def assert_as_in_torch(batch: Batch, splits: int) -> None:
    """The result, and all pages bit for bit: the new rows are in them, and nothing else has changed."""
    out, pages = batch.found(splits)
    expected, expected_pages = batch.expected()
    torch.testing.assert_close(out, expected, atol=TOLERANCE[batch.dtype], rtol=0)
    assert torch.equal(pages.nan_to_num(nan=77.0), expected_pages.nan_to_num(nan=77.0))
    assert not torch.equal(pages.nan_to_num(nan=77.0), batch.pages.nan_to_num(nan=77.0))


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "with_rope"),
    [(16, 2, 128, True), (6, 2, 64, True), (2, 2, 64, False), (20, 1, 16, True)],
)
def test_the_kernel_is_the_reference(num_heads, num_kv_heads, head_dim, with_rope, splits):
    assert_as_in_torch(Batch(stack(num_heads, num_kv_heads, head_dim), with_rope=with_rope), splits)


@pytest.mark.parametrize("page_size", [1, 5, 256])
def test_pages_of_any_size(page_size):
    assert_as_in_torch(Batch(stack(3, 1, 32), page_size=page_size, contexts=(0, 5, 639)), splits=5)


@pytest.mark.parametrize("splits", [1, 5])
def test_in_half_precision(splits):
    assert_as_in_torch(Batch(stack(6, 2, 32), dtype=torch.float16), splits)


def test_a_row_alone_is_the_row_in_a_crowd():
    batch = Batch(stack(3, 1, 32))
    for splits in (1, 5):
        crowd, _ = batch.found(splits)
        for row in range(len(CONTEXTS)):
            assert torch.equal(batch.found(splits, [row])[0], crowd[row : row + 1])


def test_rows_that_share_a_page_of_nobody_hurt_no_others():
    """Fill-up of a batch: the same slot several times, in whose page anything may stand."""
    batch = Batch(stack(6, 2, 32))
    for nobody in (0, 5):
        crowd, pages = batch.found(5, [1, 3, 4])
        filled, pages_filled = batch.found(5, [1, 3, 4, nobody, nobody])
        assert torch.equal(filled[:3], crowd)
        others = [page for page in range(len(pages[0])) if page not in batch.table[nobody].tolist()]
        assert torch.equal(pages_filled[:, others].nan_to_num(nan=77.0), pages[:, others].nan_to_num(nan=77.0))


def test_a_page_table_with_a_row_stride():
    batch = Batch(stack(3, 1, 32), contexts=(0, 5, 639))
    wide = torch.full((3, batch.table.shape[1] + 5), -1, device=DEVICE)
    wide[:, : batch.table.shape[1]] = batch.table
    batch.table = wide[:, : batch.table.shape[1]]
    assert_as_in_torch(batch, splits=5)


@pytest.mark.parametrize("with_rope", [True, False])
@pytest.mark.parametrize("hidden", [64, 48])
def test_the_norm_may_be_taken_after_the_product(hidden, with_rope):
    """RMS norm scales a row, so it may as well scale the product of the row."""
    config = stack(6, 2, 32)
    batch = Batch(config, with_rope=with_rope)
    x = 3 * randn(len(CONTEXTS), 1, hidden, seed=4)
    weight, norm_weight = randn(batch.qkv.shape[-1], hidden, seed=5) / hidden**0.5, randn(hidden, seed=6)
    batch.qkv = F.linear(TorchLayerOps().norm(x, norm_weight, EPS), weight)
    expected, expected_pages = batch.expected()
    batch.qkv = F.linear(x * norm_weight, weight)
    for splits in (1, 5):
        found, pages = batch.found(splits, x=x)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(pages, expected_pages, atol=1e-5, rtol=0, equal_nan=True)


def test_counters_that_are_too_few_are_refused():
    batch = Batch(stack(6, 2, 32))
    qkv, rotation, context = batch.rows(slice(None))
    few = torch.zeros(2 * len(CONTEXTS) - 1, dtype=torch.int32, device=DEVICE)
    with pytest.raises(AssertionError):
        decode.decode_attention(qkv, None, EPS, batch.config, rotation, batch.pages, context, few, 132)
