"""Adapters in Triton against torch, interpreted on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels.lora import LoraKernel, LoraStack, Selection, torch_lora

triton_lora = pytest.importorskip("voxcpm_core.kernels.triton_lora", reason="Triton has no build for this machine")
triton_gating = pytest.importorskip("voxcpm_core.kernels.triton_gating", reason="Triton has no build for this machine")
triton_lora_shrink = pytest.importorskip(
    "voxcpm_core.kernels.triton_lora_shrink", reason="Triton has no build for this machine"
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_SLOTS = 3
CASES = [  # of merged layers out, in, rank, tokens, rows, with a norm
    ((48,), 40, 16, 1, [-1, 0, 2], False),
    ((70, 16, 16), 200, 32, 5, [-1, 1], True),  # columns that fill no block, and layers that end inside of one
    ((34, 34), 128, 64, 19, [2], True),
    ((34, 34), 328, 32, 11, [2, 0, -1, 2, 2], True),  # two sequences of each in a tile
    ((96,), 512, 32, 3, [1] * 9 + [0], False),
    ((48,), 64, 16, 3, [-1, -1], False),
]
by_case = pytest.mark.parametrize(("nums_out", "num_in", "rank", "num_tokens", "rows", "has_norm"), CASES)
by_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-2}


@pytest.fixture(autouse=True)
def small_programs(monkeypatch):
    """So that small products take several, and split their sums."""
    monkeypatch.setattr(triton_lora, "block_columns", lambda num_rows: 32)
    monkeypatch.setattr(triton_lora_shrink, "K_PER_SPLIT", 64)


def randn(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def stack(
    nums_out: tuple[int, ...], num_in: int, rank: int, dtype: torch.dtype, kernel: LoraKernel, rows: list[int]
) -> LoraStack:
    """Over a memory with more in each slot than this product's A and B."""
    num_a, num_b = len(nums_out) * rank * num_in, sum(nums_out) * rank
    memory = randn(NUM_SLOTS, num_a + num_b + 64, seed=3, dtype=dtype) / num_in**0.5
    a = memory[:, :num_a].unflatten(-1, (-1, num_in))
    b = memory[:, num_a : num_a + num_b].unflatten(-1, (-1, rank))
    return LoraStack(a, b, nums_out, Selection(torch.tensor(rows, device=DEVICE)), kernel)


def inputs(num_sequences: int, num_tokens: int, num_in: int, num_out: int, dtype: torch.dtype, has_norm: bool):
    x = randn(num_sequences, num_tokens, num_in, seed=0, dtype=dtype)
    y = randn(num_sequences, num_tokens, num_out, seed=1, dtype=dtype)
    return x, y, 1e-5 if has_norm else None


@by_dtype
@by_case
def test_sums(nums_out, num_in, rank, num_tokens, rows, has_norm, dtype):
    x, y, eps = inputs(2 * len(rows), num_tokens, num_in, sum(nums_out), dtype, has_norm)  # guidance has rows twice
    expected, found = (
        stack(nums_out, num_in, rank, dtype, kernel, rows).add(y.clone(), x, 0.5, eps)
        for kernel in (torch_lora, triton_lora.triton_lora)
    )
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)
    is_changed = (found != y).flatten(1).any(dim=1).tolist()
    assert is_changed == [slot >= 0 for slot in rows * 2], "who has none is not even rounded"


@by_dtype
@pytest.mark.parametrize("has_norm", [True, False])
@pytest.mark.parametrize(
    ("ffn", "num_tokens", "rows"), [(34, 11, [2, -1, 0, 2]), (80, 1, [-1, 1, -1]), (48, 3, [-1, -1])], ids=str
)
def test_gated_sums(ffn, num_tokens, rows, has_norm, dtype):
    x, y, eps = inputs(2 * len(rows), num_tokens, 200, 2 * ffn, dtype, has_norm)
    expected, found, added = (
        (lambda each: each.add_gated if gates else each.add)(stack((ffn, ffn), 200, 32, dtype, kernel, rows))(
            y.clone(), x, eps=eps
        )
        for kernel, gates in ((torch_lora, True), (triton_lora.triton_lora, True), (triton_lora.triton_lora, False))
    )
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)
    assert torch.equal(found, triton_gating.swiglu(added)), "rounded as by two kernels"
    without = [i for i, slot in enumerate(rows * 2) if slot < 0]
    assert torch.equal(found[without], triton_gating.swiglu(y)[without])


def test_a_sequence_gets_the_same_alone_and_in_a_crowd():
    """Beside whomever, and in whatever tile: sums over K are split by its length alone."""
    rows = [1, -1, 0, 1, 1, 2, 0, 1, -1, 2, 1]
    x, y, eps = inputs(2 * len(rows), 11, 328, 68, torch.float32, has_norm=True)
    for name in ("add", "add_gated"):

        def run(rows, x, y, name=name):
            each = stack((34, 34), 328, 32, torch.float32, triton_lora.triton_lora, rows)
            return getattr(each, name)(y.clone(), x, eps=eps)

        crowd = run(rows, x, y)
        for i in range(len(rows)):
            pair = [i, i + len(rows)]
            torch.testing.assert_close(run([rows[i]], x[pair], y[pair]), crowd[pair], atol=2e-6, rtol=0)


def test_how_k_is_split_follows_from_k_alone(monkeypatch):
    monkeypatch.setattr(triton_lora_shrink, "K_PER_SPLIT", 512)
    assert [triton_lora_shrink.num_splits(k) for k in (32, 1024, 2048, 4096, 6144)] == [1, 2, 4, 8, 8]


def test_a_vector_for_each_sequence_is_one_token():
    each = stack((48,), 40, 16, torch.float32, triton_lora.triton_lora, [1, -1])
    x, y = randn(2, 40, seed=0, dtype=torch.float32), randn(2, 48, seed=1, dtype=torch.float32)
    expected = y[0] + each.b[1] @ (each.a[1] @ x[0])
    torch.testing.assert_close(each.add(y.clone(), x)[0], expected, atol=1e-5, rtol=0)


def test_rows_that_are_selected_later_count():
    each = stack((48,), 40, 16, torch.float32, triton_lora.triton_lora, [1, -1])
    x, y = randn(2, 40, seed=0, dtype=torch.float32), randn(2, 48, seed=1, dtype=torch.float32)
    assert not torch.equal(each.add(y.clone(), x)[0], y[0])
    each.selection.select(torch.tensor([-1, 0], device=DEVICE))
    is_changed = (each.add(y.clone(), x) != y).any(dim=1).tolist()
    assert is_changed == [False, True]


def test_what_no_batch_selects_is_left_alone():
    each = stack((48,), 40, 16, torch.float32, triton_lora.triton_lora, [0])
    each.selection.select(None)
    y = randn(2, 48, seed=1, dtype=torch.float32)
    assert each.add(y, randn(2, 40, seed=0, dtype=torch.float32)) is y
