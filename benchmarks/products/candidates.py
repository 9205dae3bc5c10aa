"""Which configs of the Triton kernel are worth trying for a product: so few that all can be compiled in a minute."""

from __future__ import annotations

from itertools import product

from voxcpm_core.kernels.product_configs import ProductConfig, Shape

SHARED_BYTES = 220 * 1024  # a little less than Hopper has for a program
VALUES_PER_THREAD = 128  # of the sums; more leaves too few registers for the rest
VALUES_BESIDE_NORM = 64  # of the sums, where the squares of a pass are kept, too
MIN_PASSES = 2  # of a split
NUM_WAVES = (0.45, 2.5)  # of programs over the processors
NUM_WAVES_UNSPLIT = (0.3, 8.0)


def candidates(shape: Shape, num_rows: int, num_processors: int) -> list[ProductConfig]:
    """Without dependent launch, which is tried on the best of them."""
    found = []
    # Squares inside keep x out of the tensor cores' direct path; they pay, if at all, where few rows leave them idle.
    ways = (False,) if shape.op == "linear_add" else (True, False) if num_rows <= 16 else (True,)
    for block_m, norm_first in product(_blocks_of_rows(num_rows), ways):
        for block_n, splits in product((16, 32, 64, 128, 256), (1, 2, 4, 8)):
            for block_k, num_stages in _passes(shape, block_m, norm_first):
                num_warps = _num_warps(shape, block_m, block_n)
                config = ProductConfig(
                    block_m, block_n, block_k, splits, num_warps, num_stages, norm_first=norm_first
                )
                if _is_sensible(shape, config, num_rows, num_processors):
                    found.append(config)
    return found


def _blocks_of_rows(num_rows: int) -> tuple[int, ...]:
    if num_rows <= 32:
        return (16 if num_rows <= 16 else 32, 64)
    if num_rows <= 64:
        return 32, 64
    return (64,) if num_rows <= 96 else (64, 128) if num_rows <= 384 else (128,)


def _passes(shape: Shape, block_m: int, norm_first: bool) -> tuple[tuple[int, int], ...]:
    """block_k and num_stages."""
    if block_m <= 32:
        return (128, 3), (128, 5), (256, 3)
    # With a norm the squares of a whole pass are kept in registers.
    return ((64, 4), (128, 3)) if norm_first or shape.op == "linear_add" else ((64, 4),)


def _num_sums(shape: Shape, block_m: int, block_n: int) -> int:
    return block_m * block_n * (2 if shape.op == "norm_swiglu" else 1)


def _num_warps(shape: Shape, block_m: int, block_n: int) -> int:
    return 8 if block_m == 128 or _num_sums(shape, block_m, block_n) > 128 * 32 else 4


def _is_sensible(shape: Shape, config: ProductConfig, num_rows: int, num_processors: int) -> bool:
    num_tiles = config.num_tiles(num_rows, shape.num_columns)
    fewest, most = NUM_WAVES if config.splits > 1 else NUM_WAVES_UNSPLIT
    if not fewest * num_processors <= num_tiles * config.splits <= most * num_processors:
        return False
    if config.splits > 1 and (num_tiles > num_processors or shape.k < config.splits * config.block_k * MIN_PASSES):
        return False
    if config.block_m > 32 and config.block_n == 16:
        return False
    num_threads = 32 * config.num_warps
    most_values = VALUES_BESIDE_NORM if config.norm_way(shape.op) == "beside" else VALUES_PER_THREAD
    if _num_sums(shape, config.block_m, config.block_n) > most_values * num_threads:
        return False
    return config.shared_bytes(shape) <= SHARED_BYTES
