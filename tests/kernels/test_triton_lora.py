"""Adapters in Triton against torch, interpreted on a machine without a GPU."""

from __future__ import annotations

import pytest
import torch

from voxcpm_core.kernels.lora import LoraKernel, LoraStack, Norm, Selection, torch_lora

triton_lora = pytest.importorskip("voxcpm_core.kernels.triton_lora", reason="Triton has no build for this machine")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_SLOTS = 3
BLOCK_N, BLOCK_TOKENS = 32, 16  # so that small products take several
CASES = [  # of merged layers out, in, rank, tokens, rows, with a norm
    ((48,), 40, 16, 1, [-1, 0, 2], False),
    ((70, 16, 16), 200, 32, 5, [-1, 1], True),  # columns that fill no block, and layers that end inside of one
    ((34, 34), 128, 64, 19, [2], True),
    ((48,), 64, 16, 3, [-1, -1], False),
]


def randn(*shape: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def stack(nums_out: tuple[int, ...], num_in: int, rank: int, dtype: torch.dtype, kernel: LoraKernel) -> LoraStack:
    """Over a memory with more in each slot than this product's A and B."""
    num_a, num_b = len(nums_out) * rank * num_in, sum(nums_out) * rank
    memory = randn(NUM_SLOTS, num_a + num_b + 64, seed=3, dtype=dtype) / num_in**0.5
    a = memory[:, :num_a].unflatten(-1, (-1, num_in))
    b = memory[:, num_a : num_a + num_b].unflatten(-1, (-1, rank))
    return LoraStack(a, b, nums_out, Selection(), kernel)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("nums_out", "num_in", "rank", "num_tokens", "rows", "has_norm"), CASES)
def test_sums(nums_out, num_in, rank, num_tokens, rows, has_norm, dtype, monkeypatch):
    monkeypatch.setattr(triton_lora, "BLOCK_N", BLOCK_N)
    monkeypatch.setattr(triton_lora, "MAX_BLOCK_TOKENS", BLOCK_TOKENS)
    index = torch.tensor(rows, device=DEVICE)
    x = randn(2 * len(rows), num_tokens, num_in, seed=0, dtype=dtype)  # the rows twice, as guidance has them
    y = randn(2 * len(rows), num_tokens, sum(nums_out), seed=1, dtype=dtype)
    norm = Norm(randn(num_in, seed=5, dtype=dtype), 1e-5) if has_norm else None
    found = []
    for kernel in (torch_lora, triton_lora.triton_lora):
        each = stack(nums_out, num_in, rank, dtype, kernel)
        each.selection.rows = index
        found.append(each.add(y.clone(), x, 0.5, norm))
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found[1], found[0], atol=tolerance, rtol=0)
    is_changed = (found[1] != y).flatten(1).any(dim=1).tolist()
    assert is_changed == [slot >= 0 for slot in rows * 2], "who has none is not even rounded"


def test_a_vector_for_each_sequence_is_one_token():
    each = stack((48,), 40, 16, torch.float32, triton_lora.triton_lora)
    each.selection.rows = torch.tensor([1, -1], device=DEVICE)
    x, y = randn(2, 40, seed=0, dtype=torch.float32), randn(2, 48, seed=1, dtype=torch.float32)
    expected = y[0] + each.b[1] @ (each.a[1] @ x[0])
    torch.testing.assert_close(each.add(y.clone(), x)[0], expected, atol=1e-5, rtol=0)


def test_what_no_batch_selects_is_left_alone():
    each = stack((48,), 40, 16, torch.float32, triton_lora.triton_lora)
    y = randn(2, 48, seed=1, dtype=torch.float32)
    assert each.add(y, randn(2, 40, seed=0, dtype=torch.float32)) is y
