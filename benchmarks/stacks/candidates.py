"""Which plans of a stack's kernel are worth trying: so few that all can be compiled in minutes."""

from __future__ import annotations

from itertools import product

from voxcpm_core.kernels.stack_plan import StackPlan, StackShape

SHARED_BYTES = 200 * 1024  # of a program; less than Hopper has, since attention and sums have theirs, too
MAX_SUMS = 128  # of a thread
BLOCKS_N, SPLITS = (16, 32, 64, 128), (1, 2, 4, 8)

# Of an H200: what a processor reads of its share of the memory's bandwidth, and of the L2 cache, in a microsecond; and
# how long a unit takes beside that. They only order what is then measured.
MEMORY_KB_PER_US, CACHE_KB_PER_US = 36.0, 60.0
UNIT_US, SPLIT_US = 0.8, 1.2


def stack_plans(shape: StackShape, num_rows: int, num_processors: int) -> list[StackPlan]:
    """With K split where it pays by the model above, and nowhere; the likeliest first."""
    block_m = 16 if num_rows <= 16 else 32 if num_rows <= 32 else 64
    found = []
    for (block_k, num_warps, num_stages), splits in product(_passes(block_m), (SPLITS, (1,))):
        q_size, kv_size = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        tiles = [
            _tile(num_rows, num_columns, k, num_sums, block_m, block_k, num_warps, num_stages, splits, num_processors)
            for num_columns, k, num_sums in (
                (q_size + 2 * kv_size, shape.hidden, 1), (shape.hidden, q_size, 1), (shape.ffn, shape.hidden, 2),
                (shape.hidden, shape.ffn, 1),
            )
        ]  # fmt: skip
        found.append(StackPlan(block_m, block_k, *tiles, num_warps=num_warps, num_stages=num_stages))
    return list(dict.fromkeys(found))


def _passes(block_m: int) -> tuple[tuple[int, int, int], ...]:
    """block_k, num_warps and num_stages. Four warps leave registers for other kernels beside, few stages memory."""
    if block_m == 64:
        return (64, 4, 4), (64, 4, 3), (64, 8, 4)
    return (128, 4, 4), (256, 4, 3), (128, 8, 4)


def _tile(
    num_rows: int, num_columns: int, k: int, num_sums: int, block_m: int, block_k: int, num_warps: int,
    num_stages: int, splits: tuple[int, ...], num_processors: int,
) -> tuple[int, int]:  # fmt: skip
    """Columns and splits that take least time by the model."""

    def microseconds(tile: tuple[int, int]) -> float:
        block_n, num_splits = tile
        num_blocks = -(-num_rows // block_m)
        num_units = num_blocks * -(-num_columns // block_n) * num_splits
        num_turns = -(-num_units // num_processors)
        weights_kb = 2e-3 * num_sums * block_n * k / num_splits
        rows_kb = 2e-3 * min(block_m, num_rows) * k / num_splits
        reading_us = max(weights_kb / MEMORY_KB_PER_US / num_blocks, (weights_kb + rows_kb) / CACHE_KB_PER_US)
        # The last of those that share a tile reads the sums of all.
        sums_us = 4e-3 * block_m * block_n * num_sums * num_splits / CACHE_KB_PER_US + SPLIT_US
        return num_turns * (UNIT_US + reading_us) + (sums_us if num_splits > 1 else 0.0)

    fitting = [
        (block_n, num_splits) for block_n, num_splits in product(BLOCKS_N, splits)
        if k >= num_splits * block_k * 2 and block_m * block_n * num_sums <= MAX_SUMS * 32 * num_warps
        and 2 * (block_m + num_sums * block_n) * block_k * num_stages <= SHARED_BYTES
    ]  # fmt: skip
    return min(fitting, key=microseconds)
