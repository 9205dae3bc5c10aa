"""A whole stack as one kernel, against torch; interpreted where there is no GPU.

The interpreter runs programs one after the other, so that there the grid is of one, which never waits.
"""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.kernels.stacks import NUM_POSITIONS, filled_cache, randn, small_config, small_stack
from voxcpm_core.kernels.fp8 import quantised
from voxcpm_core.kernels.layer_ops import TorchLayerOps
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import LoraStack, Selection, torch_lora
from voxcpm_core.kernels.paged_attention import paged_attention
from voxcpm_core.kernels.stack_plan import MAX_ROWS, StackPlan, StackShape
from voxcpm_core.model.kv_cache import PagedCacheAttention
from voxcpm_core.model.transformer import LocalAttention, Transformer

run_together = pytest.importorskip("tests.kernels.together", reason="Triton has no build for this machine").run_together
triton_layer_ops, triton_fused_stack, triton_stack = (
    pytest.importorskip(f"voxcpm_core.kernels.{name}", reason="Triton has no build for this machine")
    for name in ("triton_layer_ops", "triton_fused_stack", "triton_stack")
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-2}
# Few units, since each costs the interpreter milliseconds.
WHOLE = StackPlan(16, 64, (128, 1), (32, 1), (128, 1), (64, 1), num_warps=4, num_stages=2)
SPLIT = StackPlan(32, 64, (128, 2), (64, 3), (128, 1), (32, 4), num_warps=4, num_stages=2)


def fused_ops(plan: StackPlan | None, asked: list[tuple[StackShape, int]] | None = None):
    def choice(shape: StackShape, num_rows: int) -> StackPlan | None:
        if asked is not None:
            asked.append((shape, num_rows))
        return plan

    return triton_layer_ops.TritonLayerOps(DEVICE, lambda shape, num_rows: None, plans=choice)


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, atol=TOLERANCE[expected.dtype], rtol=0)


@pytest.mark.parametrize(
    ("plan", "head_dim", "count", "num_tokens", "kept", "dtype"),
    [(SPLIT, 32, 2, 11, slice(-4, None), torch.float32), (WHOLE, 16, 4, 5, slice(0, 1), torch.float16)],
    ids=["split, float32", "whole, float16"],
)
def test_local_attention(plan, head_dim, count, num_tokens, kept, dtype):
    config = small_config(head_dim)
    x = randn(count, num_tokens, config.hidden_size, dtype=dtype, device=DEVICE, seed=5)
    given, attention, fused = x.clone(), LocalAttention(num_tokens, DEVICE), fused_ops(plan)
    expected, found = (
        small_stack(config, ops, dtype, DEVICE)(x, attention, kept) for ops in (TorchLayerOps(), fused)
    )
    assert_same(found, expected)
    assert torch.equal(x, given)
    assert not fused._counters.any()


@pytest.mark.parametrize(
    ("plan", "head_dim", "most_splits", "rope", "dtype"),
    [(SPLIT, 16, 1, False, torch.float16), (WHOLE, 32, 3, True, torch.float32)],
    ids=["split, float16", "whole, float32"],
)
def test_a_paged_cache(plan, head_dim, most_splits, rope, dtype, monkeypatch):
    """Rows that begin, that have keys in a part of the splits, and in all; the new keys and values are stored."""
    share_out = triton_fused_stack.Attending.of
    monkeypatch.setattr(
        triton_fused_stack.Attending, "of", lambda *given: share_out(*given)._replace(most_splits=most_splits)
    )
    config, positions = small_config(head_dim, rope=rope), [0, 40, NUM_POSITIONS - 1]
    x = randn(len(positions), 1, config.hidden_size, dtype=dtype, device=DEVICE, seed=6)
    caches = [filled_cache(config, positions, dtype, DEVICE) for _ in range(2)]
    before = caches[0].cache.pages.clone()
    expected, found = (
        small_stack(config, ops, dtype, DEVICE)(x, cache)
        for ops, cache in zip((TorchLayerOps(), fused_ops(plan)), caches, strict=True)
    )
    assert_same(found, expected)
    assert_same(caches[1].cache.pages, caches[0].cache.pages)
    changed = (caches[1].cache.pages != before).any(-1).any(-1)  # [layers, 2, pages, page_size]
    assert changed.sum() == config.num_layers * 2 * len(positions)


def test_rows_alone_are_rows_in_a_crowd():
    config = small_config()
    positions = [100, 7]
    x = randn(len(positions), 1, config.hidden_size, dtype=torch.float32, device=DEVICE, seed=6)
    stack = small_stack(config, fused_ops(WHOLE), torch.float32, DEVICE)
    crowd = stack(x, filled_cache(config, positions, torch.float32, DEVICE))
    for row in range(len(positions)):
        cache = filled_cache(config, positions, torch.float32, DEVICE)
        context = dataclasses.replace(
            cache.cache.context, page_table=cache.cache.context.page_table[row : row + 1],
            positions=cache.positions[row : row + 1],
        )  # fmt: skip
        alone = stack(x[row : row + 1], type(cache)(cache.cache.pages, context))
        torch.testing.assert_close(alone, crowd[row : row + 1], atol=1e-6, rtol=0)


def test_the_choice_is_asked_for_the_stack_and_its_rows(monkeypatch):
    monkeypatch.setattr(triton_fused_stack.TritonFusedStack, "_run", lambda self, plan, x, *rest: x)
    config, asked = small_config(), []
    stack = small_stack(config, fused_ops(WHOLE, asked), torch.float32, DEVICE)
    stack(torch.zeros(2, 3, config.hidden_size, device=DEVICE), LocalAttention(3, DEVICE))
    stack(torch.zeros(2, 1, config.hidden_size, device=DEVICE), filled_cache(config, [1, 2], torch.float32, DEVICE))
    assert asked == [
        (StackShape(48, 80, 6, 2, 32, num_tokens, "float32"), rows) for num_tokens, rows in ((3, 6), (0, 2))
    ]


class TestWhatIsLeftToBlocksOneByOne:
    """Where the table would have the kernel, but it does not know all that is asked of it."""

    @pytest.fixture(autouse=True)
    def kernel(self, monkeypatch):
        self.launches = 0

        def run(stack, plan, x, *rest):
            self.launches += 1
            return x

        monkeypatch.setattr(triton_fused_stack.TritonFusedStack, "_run", run)
        self.config = small_config()

    def launches_of(self, shape, attention, ops=None, qkv=None):
        stack = small_stack(self.config, TorchLayerOps(), torch.float32, DEVICE)
        if qkv is not None:
            stack.layers[0] = dataclasses.replace(stack.layers[0], qkv=qkv(stack.layers[0].qkv))
        stack = Transformer(self.config, stack.layers, stack.norm, stack.rope, ops or fused_ops(WHOLE))
        self.launches = 0
        stack(torch.ones(*shape, self.config.hidden_size, device=DEVICE), attention)
        return self.launches

    def test_many_rows(self):
        count = MAX_ROWS // 11
        assert self.launches_of((count, 11), LocalAttention(11, DEVICE)) == 1
        torch_ops = TorchLayerOps()
        torch_ops.fused_stack = fused_ops(WHOLE).fused_stack  # the rest is quicker in torch
        assert self.launches_of((count + 1, 11), LocalAttention(11, DEVICE), torch_ops) == 0

    def test_prefixes(self):
        cache = filled_cache(self.config, [5], torch.float32, DEVICE).cache
        positions = torch.tensor([[5, 6]], device=DEVICE)
        context = dataclasses.replace(cache.context, positions=positions, max_context=7)
        assert self.launches_of((1, 2), PagedCacheAttention(cache.pages, context)) == 0

    def test_another_attention_over_pages(self):
        ops = triton_layer_ops.TritonLayerOps(
            DEVICE, lambda shape, num_rows: None, attention=paged_attention, plans=lambda shape, num_rows: WHOLE
        )
        assert self.launches_of((1, 1), filled_cache(self.config, [5], torch.float32, DEVICE), ops) == 0
        assert self.launches_of((1, 5), LocalAttention(5, DEVICE), ops) == 1

    def test_weights_in_float8(self):
        def in_float8(linear):
            codes, scales = quantised(linear.weight)
            return Linear(codes, scales=scales)

        assert self.launches_of((1, 5), LocalAttention(5, DEVICE), qkv=in_float8) == 0

    @pytest.mark.parametrize(("rows", "launches"), [([0], 0), (None, 1)], ids=["active", "idle"])
    def test_adapters(self, rows, launches):
        def adapted(linear):
            a, b = (torch.zeros(1, *shape, device=DEVICE) for shape in ((16, 48), (320, 16)))
            selection = Selection(None if rows is None else torch.tensor(rows, device=DEVICE))
            return Linear(linear.weight, lora=LoraStack(a, b, (320,), selection, torch_lora))

        assert self.launches_of((1, 5), LocalAttention(5, DEVICE), qkv=adapted) == launches


@pytest.mark.skipif(DEVICE.type == "cuda", reason="the interpreter is what lets them meet; benchmarks/gpu_stacks.py")
@pytest.mark.parametrize("is_paged", [False, True], ids=["local", "paged"])
def test_programs_that_meet_at_barriers_give_what_one_alone_gives(is_paged, monkeypatch):
    """Bit for bit, in whatever order they arrive: what is split is summed in a fixed order."""
    config, positions = small_config(), [90, 40]
    num_tokens = 1 if is_paged else 11
    x = randn(2, num_tokens, config.hidden_size, dtype=torch.float32, device=DEVICE, seed=5)

    def found():
        attention = filled_cache(config, positions, x.dtype, DEVICE) if is_paged else LocalAttention(num_tokens, DEVICE)
        return small_stack(config, fused_ops(SPLIT), torch.float32, DEVICE)(x, attention)

    share_out = triton_fused_stack.Attending.of
    monkeypatch.setattr(
        triton_fused_stack.Attending, "of", lambda *given: share_out(*given)._replace(most_splits=2)
    )
    alone = found()
    monkeypatch.setattr(triton_fused_stack, "_num_programs", lambda device: 5)
    together = run_together(monkeypatch, 5, seed=7)
    for name in ("meet", "_ask_and_meet"):
        monkeypatch.setattr(triton_stack, name, lambda *arguments: together.meet())
    monkeypatch.setattr(triton_stack, "ask", lambda *arguments: None)
    assert torch.equal(found(), alone)
    assert together.num_barriers == 1 + 5 * config.num_layers
