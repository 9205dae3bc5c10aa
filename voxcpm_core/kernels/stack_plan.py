"""Whether a whole stack of blocks runs as one kernel, and how: by the table for the GPU at hand alone.

The tables are those of the products (`product_configs.py`). Where a table says nothing of a stack, its blocks run one
by one, as on any GPU that has none.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.product_configs import TUNED, Gpu, table_values

MAX_ROWS = 352  # with more, the products themselves outweigh what lies between them


class StackShape(NamedTuple):
    """What decides how fast a stack is, beside its rows. The number of layers does not."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    num_tokens: int  # of a sequence, which attend to each other; 0: one, which attends to a paged cache
    dtype: str  # as torch names it

    @classmethod
    def of(cls, config: TransformerConfig, num_tokens: int, dtype: str) -> StackShape:
        return cls(
            config.hidden_size, config.ffn_size, config.num_heads, config.num_kv_heads, config.head_dim, num_tokens,
            dtype,
        )  # fmt: skip


@dataclass(frozen=True)
class StackPlan:
    """One way to run the kernel; the fields of a table's `plan`. Each product's tiles are dealt to all programs."""

    block_m: int  # rows of a tile
    block_k: int  # of one pass
    qkv: tuple[int, int]  # columns of a tile, and programs that share its K
    o: tuple[int, int]
    gate_up: tuple[int, int]
    down: tuple[int, int]
    num_warps: int
    num_stages: int

    @classmethod
    def of(cls, values: dict[str, Any]) -> StackPlan:
        """From its fields as JSON has them."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


class PlanThreshold(NamedTuple):
    """Up to so many rows: that plan, None for blocks one by one."""

    max_rows: int
    plan: StackPlan | None


PlanChoice = Callable[[StackShape, int], StackPlan | None]  # for so many rows
StackTable = dict[StackShape, list[PlanThreshold]]


def read_stacks(gpu: Gpu, folder: Path = TUNED) -> StackTable:
    """What the table for that GPU says of stacks; empty where there is none or it says nothing."""
    values = table_values(gpu, folder)
    table: StackTable = {}
    for stack in values.get("stacks", []):
        shape = StackShape(**{name: stack[name] for name in StackShape._fields})
        rows = sorted(stack["rows"], key=lambda row: row["max_rows"])
        table[shape] = [PlanThreshold(row["max_rows"], row["plan"] and StackPlan.of(row["plan"])) for row in rows]
    return table


def stacks_json(table: StackTable) -> list[dict[str, Any]]:
    """What a table's file says of stacks."""
    return [
        {
            **shape._asdict(),
            "rows": [{"max_rows": rows, "plan": plan and dataclasses.asdict(plan)} for rows, plan in thresholds],
        }
        for shape, thresholds in table.items()
    ]


def choose_plan(table: StackTable, shape: StackShape, num_rows: int) -> StackPlan | None:
    """None: blocks one by one."""
    thresholds = table.get(shape, [])
    index = bisect_left([threshold.max_rows for threshold in thresholds], num_rows)
    return thresholds[index].plan if index < len(thresholds) else None
