"""Each kernel of the adapters alone in a graph, on the products of VoxCPM2's DiT: where their time goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.products.timing import GraphTimer
from voxcpm_core.checkpoint.releases import release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.kernels.lora import LoraStack, Selection
from voxcpm_core.kernels.triton_lora import expand, expand_gated, triton_lora
from voxcpm_core.kernels.triton_lora_shrink import shrink
from voxcpm_core.kernels.triton_lora_tiles import Tiles, make_tiles

BATCHES = (1, 64)
RANK, NUM_ADAPTERS = 32, 8
DTYPE = torch.bfloat16
NUM_CALLS, ROUNDS = 32, (2, 2, 2, 3)


class Product(NamedTuple):
    """One that adapters change."""

    name: str
    nums_out: tuple[int, ...]  # of the layers that it merges
    num_in: int


def time_kernels(device: torch.device) -> None:
    """Print a line for each product and batch: shrinking, and expanding with what belongs to it."""
    config = ModelConfig.from_json(release_config("2"))
    dit, num_tokens = config.dit, 1 + config.mu_tokens + 2 * config.patch_size
    products = [
        Product("qkv", (dit.q_size, dit.kv_size, dit.kv_size), dit.hidden_size),
        Product("o", (dit.hidden_size,), dit.q_size),
        Product("gate_up", (dit.ffn_size, dit.ffn_size), dit.hidden_size),
        Product("down", (dit.hidden_size,), dit.ffn_size),
    ]
    timer = GraphTimer(device)
    for batch in BATCHES:
        rows = torch.arange(batch, device=device) % NUM_ADAPTERS

        def tiles_made(_: int, rows: Tensor = rows) -> Tiles:
            return make_tiles(rows, NUM_ADAPTERS, 2 * len(rows), num_tokens)

        print(f"     tiles, {batch} streams: {timer.microseconds(tiles_made, NUM_CALLS, ROUNDS):.1f} us", flush=True)
        for product in products:
            stacks = _stacks(product, rows)
            x = torch.randn(2 * batch, num_tokens, product.num_in, device=device, dtype=DTYPE)
            shrink_us, expand_us = (
                timer.microseconds(call, max(NUM_CALLS, len(stacks)), ROUNDS)
                for call in _calls(stacks, tiles_made(0), x)
            )
            print(f"     adapters of {product.name}, {batch} streams: shrink {shrink_us:.1f} us, "
                  f"expand {expand_us:.1f} us", flush=True)  # fmt: skip


def _calls(stacks: list[LoraStack], tiles: Tiles, x: Tensor) -> tuple[Callable[[int], object], ...]:
    """Both kernels with the stack of a number, as a step has them: behind a norm where the product merges layers."""
    nums_out = stacks[0].nums_out
    eps = 1e-5 if len(nums_out) == 2 else None
    y = x.new_zeros(*x.shape[:-1], sum(nums_out))

    def shrunk(number: int) -> Tensor:
        return shrink(stacks[number % len(stacks)], tiles, x, has_squares=eps is not None)

    parts = shrunk(0)

    def expanded(number: int) -> Tensor:
        stack = stacks[number % len(stacks)]
        if len(nums_out) == 2:  # gating follows
            return expand_gated(stack, tiles, parts, y, eps)
        return expand(stack, tiles, parts, y, 1.0, eps)

    return shrunk, expanded


def _stacks(product: Product, rows: Tensor) -> list[LoraStack]:
    """As many as are larger than the L2 cache, since all of a step's weights are read between two uses of one."""
    num_a, num_b = len(product.nums_out) * RANK * product.num_in, sum(product.nums_out) * RANK
    cache_bytes = torch.cuda.get_device_properties(rows.device).L2_cache_size
    num_stacks = -(-2 * cache_bytes // (len(rows.unique()) * (num_a + num_b) * DTYPE.itemsize))
    memory = torch.randn(num_stacks, NUM_ADAPTERS, num_a + num_b, device=rows.device, dtype=DTYPE)
    memory /= product.num_in**0.5
    return [
        LoraStack(
            each[:, :num_a].unflatten(-1, (-1, product.num_in)), each[:, num_a:].unflatten(-1, (-1, RANK)),
            product.nums_out, Selection(rows), triton_lora,
        )
        for each in memory
    ]  # fmt: skip
