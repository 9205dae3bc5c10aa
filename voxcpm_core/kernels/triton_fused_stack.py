"""Running a whole stack of blocks as the one kernel of `triton_stack.py`: what it takes, and its launch."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.block import LayerPages, StackWeights
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.stack_plan import MAX_ROWS, PlanChoice, StackPlan, StackShape
from voxcpm_core.kernels.triton_attention import block_keys
from voxcpm_core.kernels.triton_grid import COOPERATIVE, MIN_CAPABILITY
from voxcpm_core.kernels.triton_local_attention import FULL_ROWS, MIN_SIDE
from voxcpm_core.kernels.triton_stack import stack_kernel

MAX_SPLITS = 16  # of the keys of a sequence


def can_fuse(weights: StackWeights) -> bool:
    """Whether the kernel knows weights like these, where they are."""
    device = weights.norm.device
    plain = all(linear.scales is None and linear.bias is None for layer in weights.layers for linear in layer.products)
    return plain and (device.type != "cuda" or torch.cuda.get_device_capability(device) >= MIN_CAPABILITY)


@cache
def _num_programs(device: torch.device) -> int:
    """One on each processor: they must all run at the same time, and leave room beside them."""
    if device.type != "cuda":
        return 1  # the interpreter runs one program after the other
    return torch.cuda.get_device_properties(device).multi_processor_count


class Attending(NamedTuple):
    """How the attention of so many sequences is shared out."""

    members: int  # heads of a unit of local attention; rows of one over pages
    tokens: int
    keys: int  # of a pass
    most_splits: int  # units that share a sequence and key-value head over pages

    @classmethod
    def of(
        cls, config: TransformerConfig, count: int, num_tokens: int, is_paged: bool, dtype: torch.dtype,
        num_programs: int,
    ) -> Attending:
        group = config.num_heads // config.num_kv_heads
        members = triton.next_power_of_2(group)
        if is_paged:
            most_splits = max(1, min(num_programs // (count * config.num_kv_heads), MAX_SPLITS))
            return cls(max(members, MIN_SIDE), 1, block_keys(dtype), most_splits)
        tokens = triton.next_power_of_2(num_tokens)
        members = min(members, max(1, FULL_ROWS // tokens))
        if count * config.num_heads <= num_programs:  # as little as fills a matrix product
            members = min(members, max(1, MIN_SIDE // tokens))
        return cls(members, max(tokens, MIN_SIDE // members), max(tokens, MIN_SIDE), 1)


def constants(
    config: TransformerConfig, plan: StackPlan, attending: Attending, page_size: int, is_alone: bool
) -> dict[str, Any]:
    """The kernel's compile-time arguments; page_size: 0 for local attention; is_alone: the grid is of one program."""
    half = config.head_dim // 2
    return {
        "HIDDEN": config.hidden_size, "WIDTH": triton.next_power_of_2(config.hidden_size), "FFN": config.ffn_size,
        "KV_HEADS": config.num_kv_heads, "GROUP": config.num_heads // config.num_kv_heads,
        "HALF": half, "SIDE": max(half, MIN_SIDE), "ROPE": config.rope is not None, "PAGE_SIZE": page_size,
        "MEMBERS": attending.members, "TOKENS": attending.tokens, "KEYS": attending.keys,
        "BLOCK_M": plan.block_m, "BLOCK_K": plan.block_k, "QKV_N": plan.qkv[0], "QKV_SPLITS": plan.qkv[1],
        "O_N": plan.o[0], "O_SPLITS": plan.o[1], "UP_N": plan.gate_up[0], "UP_SPLITS": plan.gate_up[1],
        "DOWN_N": plan.down[0], "DOWN_SPLITS": plan.down[1], "SQUARES": _num_squares(config, plan),
        "ALONE": is_alone,
    }  # fmt: skip


def _num_squares(config: TransformerConfig, plan: StackPlan) -> int:
    """Sums of squares a row that a norm is made of at most, as a power of two."""
    return triton.next_power_of_2(triton.cdiv(config.hidden_size, min(plan.o[0], plan.down[0])))


def options(plan: StackPlan) -> dict[str, Any]:
    """What the compiler is told besides."""
    return {"num_warps": plan.num_warps, "num_stages": plan.num_stages, **COOPERATIVE}


def _addresses_of(weights: StackWeights) -> Tensor:
    """int64 [6 (layers + 1)], on their device. The last six are the first again, since it is these that the kernel asks
    the cache for at its end, with the last norm in the place of a block's."""
    layers = [
        (layer.input_norm, layer.qkv.weight, layer.o.weight, layer.post_norm, layer.gate_up.weight, layer.down.weight)
        for layer in weights.layers
    ]
    tensors = [tensor for layer in (*layers, (weights.norm, *layers[0][1:])) for tensor in layer]
    assert all(tensor.is_contiguous() for tensor in tensors)
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.int64, device=weights.norm.device)


class TritonFusedStack:
    """One stack's. Its calls, and those of all that share its counters and barrier, run one after the other."""

    def __init__(
        self, weights: StackWeights, plans: PlanChoice, counters: Tensor, barrier: Tensor, knows_pages: bool
    ) -> None:
        """`knows_pages`: it may attend to a paged cache; or else only to the tokens at hand."""
        self._weights = weights  # keeps alive what is known by its address alone from here on
        self._addresses = _addresses_of(weights)
        self._plans, self._knows_pages = plans, knows_pages
        self._counters, self._barrier = counters, barrier

    def __call__(self, x: Tensor, rotation: Rotation | None, cache: LayerPages | None, kept: slice) -> Tensor | None:
        plan = self._plan(x, cache)
        if plan is None:
            return None
        first_kept, end_kept, step = kept.indices(x.shape[1])
        assert step == 1
        return self._run(plan, x.contiguous(), rotation, cache, first_kept, end_kept - first_kept)

    def _plan(self, x: Tensor, cache: LayerPages | None) -> StackPlan | None:
        num_tokens = x.shape[1]
        if cache is not None and not (self._knows_pages and num_tokens == 1):
            return None
        num_rows = x.shape[0] * num_tokens
        if not 0 < num_rows <= MAX_ROWS or self._has_adapters():
            return None
        dtype = str(x.dtype).removeprefix("torch.")
        return self._plans(StackShape.of(self._weights.config, 0 if cache else num_tokens, dtype), num_rows)

    def _has_adapters(self) -> bool:
        stacks = (linear.lora for linear in self._weights.layers[0].products)
        return any(stack is not None and stack.selection.rows is not None for stack in stacks)

    def _run(
        self, plan: StackPlan, x: Tensor, rotation: Rotation | None, cache: LayerPages | None, first_kept: int,
        num_kept: int,
    ) -> Tensor:  # fmt: skip
        config, (count, num_tokens, hidden) = self._weights.config, x.shape
        num_rows, num_programs = count * num_tokens, _num_programs(x.device)
        attending = Attending.of(config, count, num_tokens, cache is not None, x.dtype, num_programs)
        out = x.new_empty(count, num_kept, hidden)
        widths = hidden, hidden, config.q_size + 2 * config.kv_size, config.q_size, config.ffn_size
        hidden_room, scaled, qkv, attended, gated = (x.new_empty(num_rows, width) for width in widths)
        squares = x.new_empty(_num_squares(config, plan), num_rows, dtype=torch.float32)
        parts = x.new_empty(_num_parts(config, plan, attending, count, num_rows, self._counters), dtype=torch.float32)
        cos, sin = (x, x) if rotation is None else (part.contiguous() for part in rotation)
        pages, table, positions, page_size = x, self._addresses, self._addresses, 0
        table_stride = values_at = 0
        if cache is not None:
            pages, context = cache
            assert pages.is_contiguous()
            table, positions, page_size = context.page_table, context.positions.contiguous(), context.page_size
            table_stride, values_at = table.stride(0), pages.stride(1)
        stack_kernel[(num_programs,)](
            x, out, self._addresses, hidden_room, scaled, squares, qkv, attended, gated, parts, self._counters,
            self._barrier, cos, sin, pages, table, positions,
            len(self._weights.layers), num_rows, num_tokens, first_kept, num_kept, attending.most_splits,
            table_stride, values_at, config.residual_scale, math.log2(math.e) / math.sqrt(config.head_dim),
            config.norm_eps, **constants(config, plan, attending, page_size, num_programs == 1), **options(plan),
        )  # fmt: skip
        return out


def _num_parts(
    config: TransformerConfig, plan: StackPlan, attending: Attending, count: int, num_rows: int, counters: Tensor
) -> int:
    """Values that the split sums of any phase take."""
    num_blocks = triton.cdiv(num_rows, plan.block_m)
    heads = count * config.num_kv_heads
    num_tiles, values = [heads], [heads * attending.most_splits * attending.members * (config.head_dim + 2)]
    products = (
        (config.q_size + 2 * config.kv_size, plan.qkv, 1), (config.hidden_size, plan.o, 1),
        (config.ffn_size, plan.gate_up, 2), (config.hidden_size, plan.down, 1),
    )  # fmt: skip
    for num_columns, (block_n, splits), num_sums in products:
        if splits > 1:
            num_tiles.append(num_blocks * triton.cdiv(num_columns, block_n))
            values.append(num_tiles[-1] * splits * plan.block_m * (block_n * num_sums + 1))
    assert max(num_tiles) <= counters.numel()
    return max(values)
