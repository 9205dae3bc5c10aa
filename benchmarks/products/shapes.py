"""The products of the released models, and the numbers of rows they have in decode steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from voxcpm_core.checkpoint.releases import RELEASES, release_config
from voxcpm_core.config import ModelConfig, TransformerConfig
from voxcpm_core.kernels.product_configs import Shape
from voxcpm_core.runner.sizes import batch_sizes

BATCHES = (1, 2, 4, 8, 16, 32, 48, 60, 64)
MANY_STREAMS = 64
LIBRARY_ROWS = 49  # with fewer, own products that start early gain in a step what products alone do not show
# Numbers of rows closer together than this share what is measured for the largest of them; few rows all take one block.
# With many, which config is fastest changes with how full the last wave of programs is.
STEP, STEP_OF_FEW, FEW, STEP_OF_MANY, MANY = 1.3, 3.0, 16, 1.05, 700


def release_shapes(dtype: str = "bfloat16", fp8: bool = False) -> dict[Shape, list[int]]:
    """Each distinct product and its numbers of rows, ascending and thinned out; `fp8`: of weights in float8."""
    found = _rows_by_shape(dtype, BATCHES)
    return {shape._replace(fp8=fp8): thinned(rows) for shape, rows in found.items()}


def library_shapes(dtype: str = "bfloat16") -> dict[Shape, list[int]]:
    """Each product with many rows, of all sizes of batches."""
    found = _rows_by_shape(dtype, batch_sizes(MANY_STREAMS))
    many = {shape: sorted(count for count in rows if count >= LIBRARY_ROWS) for shape, rows in found.items()}
    return {shape: rows for shape, rows in many.items() if rows}


def _rows_by_shape(dtype: str, batches: Sequence[int]) -> dict[Shape, set[int]]:
    rows: dict[Shape, set[int]] = {}
    for generation in RELEASES:
        config = ModelConfig.from_json(release_config(generation))
        for shape, num_rows in _model_products(config, dtype, batches):
            rows.setdefault(shape, set()).add(num_rows)
    return rows


def thinned(rows: set[int]) -> list[int]:
    """From the largest down, those that are far enough from the next."""
    kept: list[int] = []
    for num_rows in sorted(rows, reverse=True):
        step = STEP_OF_FEW if num_rows <= FEW else STEP if num_rows <= MANY else STEP_OF_MANY
        if not kept or kept[-1] >= step * num_rows or kept[-1] > FEW >= num_rows:
            kept.append(num_rows)
    return kept[::-1]


def _model_products(config: ModelConfig, dtype: str, batches: Sequence[int]) -> Iterator[tuple[Shape, int]]:
    patch = config.patch_size
    dit_tokens = 1 + config.mu_tokens + 2 * patch
    for batch in batches:
        yield from _stack_products(config.base_lm, batch, batch, dtype)
        yield from _stack_products(config.local_encoder, (1 + patch) * batch, batch, dtype)
        yield from _stack_products(config.dit, 2 * dit_tokens * batch, 2 * patch * batch, dtype)


def _stack_products(config: TransformerConfig, num_rows: int, num_kept: int, dtype: str) -> Iterator[tuple[Shape, int]]:
    """`num_kept`: rows of the last block behind its attention."""
    hidden, ffn = config.hidden_size, config.ffn_size
    yield Shape("norm_linear", config.q_size + 2 * config.kv_size, hidden, dtype), num_rows
    for rows in (num_rows, num_kept):
        yield Shape("linear_add", hidden, config.q_size, dtype), rows
        yield Shape("norm_swiglu", 2 * ffn, hidden, dtype), rows
        yield Shape("linear_add", hidden, ffn, dtype), rows
