"""How each product of a block is computed, known from its shape alone: by a table for the GPU at hand, or by a rule.

A table is a file `tuned/NAME.json`, where NAME is the GPU's name in lower case with dashes; `python -m
benchmarks.kernels --tune` writes it. It also serves GPUs without one that have as many processors of the same kind.
Nothing is timed when an engine starts, so starts are fast and results repeat.
"""

from __future__ import annotations

import dataclasses
import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

Op = Literal["norm_linear", "norm_swiglu", "linear_add"]
OPS: tuple[Op, ...] = ("norm_linear", "norm_swiglu", "linear_add")
# Squares of x in the passes of the product, or in passes of their own before; by a kernel of its own; or not at all.
NormWay = Literal["beside", "before", "apart", "none"]
TUNED = Path(__file__).parent / "tuned"

MIN_BLOCK = 16  # side of a matrix product
MAX_RULE_ROWS = 64  # with more, the products themselves outweigh the starts of kernels
MAX_RULE_FP8_ROWS = 128  # with more, rows in float8, too, save more than they cost
MAX_NORM_ROWS = 64  # of a program, whose squares are kept beside its sums
MAX_ROWS_BEFORE = 32  # of one that sums them before: with more, reading x twice costs more than a kernel
MAX_RULE_SPLITS = 4
RULE_SHARED_BYTES = 96 * 1024  # of a program; every supported GPU has as much
NUM_COUNTERS = 1 << 14  # tiles of one product that may be split


@dataclass(frozen=True)
class ProductConfig:
    """One way to run the Triton kernel; the fields of a table's `config`."""

    block_m: int  # rows of a program
    block_n: int  # columns of its result
    block_k: int  # of one pass
    splits: int  # programs that share K
    num_warps: int
    num_stages: int
    pdl: bool = False  # programmatic dependent launch; Hopper and later
    norm_first: bool = False  # of the ops with a norm: not in the passes

    def norm_way(self, op: Op, defers: bool = False) -> NormWay:
        """How the op's norm is taken; `defers`: whoever takes the result may scale its rows."""
        if op == "linear_add":
            return "none"
        if not self.norm_first:
            return "beside"
        return "none" if defers else "before" if self.block_m <= MAX_ROWS_BEFORE else "apart"

    def shared_bytes(self, shape: Shape) -> int:
        """What the passes in flight take at most, and weights in float8 when they are widened."""
        columns, itemsize = self.block_n * (2 if shape.op == "norm_swiglu" else 1), shape.itemsize
        widened = columns * self.block_k * itemsize if shape.fp8 else 0
        row_bytes = self.block_m * itemsize + columns * shape.weight_itemsize
        return row_bytes * self.block_k * self.num_stages + widened

    def num_tiles(self, num_rows: int, num_columns: int) -> int:
        return -(-num_rows // self.block_m) * -(-num_columns // self.block_n)


@dataclass(frozen=True)
class LtConfig:
    """An algorithm of cuBLASLt where it is not the library's first; `config` of a table for values of 16 bits.

    Two of its attributes tell those apart that one release offers for a shape. Of another release it may be another
    algorithm, whose results are as right.
    """

    tile: int  # CUBLASLT_ALGO_CONFIG_TILE_ID
    custom: int  # CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION


Config = ProductConfig | LtConfig | None  # None: as torch has cuBLAS


class Gpu(NamedTuple):
    """A device, as its driver describes it."""

    name: str
    capability: str  # of its processors, such as "9.0"
    num_processors: int


class Shape(NamedTuple):
    """A product's weights [n, k], beside values of `dtype` (as torch names it), and in it or in float8."""

    op: Op
    n: int
    k: int
    dtype: str
    fp8: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return 4 if self.dtype == "float32" else 2

    @property
    def weight_itemsize(self) -> int:
        return 1 if self.fp8 else self.itemsize

    @property
    def num_columns(self) -> int:
        """Of the result."""
        return self.n // 2 if self.op == "norm_swiglu" else self.n


class Threshold(NamedTuple):
    """Up to so many rows."""

    max_rows: int
    config: Config


Table = dict[Shape, list[Threshold]]


def slug(gpu_name: str) -> str:
    """`NVIDIA H200` -> `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-")


def read_table(gpu: Gpu, folder: Path = TUNED) -> Table:
    """The table for that GPU, empty where there is none. Raises ValueError naming a product that cannot run."""
    file = folder / f"{slug(gpu.name)}.json"
    if file.exists():
        return _parsed(file, json.loads(file.read_text()))
    for other in sorted(folder.glob("*.json")):
        values = json.loads(other.read_text())
        if Gpu(**values["gpu"])[1:] == gpu[1:]:
            return _parsed(other, values)
    return {}


def _parsed(file: Path, values: dict[str, Any]) -> Table:
    table: Table = {}
    for product in values["products"]:
        shape = Shape(product["op"], product["n"], product["k"], product["dtype"], product.get("fp8", False))
        thresholds = [Threshold(row["max_rows"], _config(row["config"])) for row in product["rows"]]
        for max_rows, config in thresholds:
            if isinstance(config, LtConfig) and (shape.fp8 or shape.itemsize != 2):
                raise ValueError(f"{file}: {shape} with {max_rows} rows: no algorithm of cuBLASLt can be named")
            if not isinstance(config, ProductConfig) or config.splits == 1:
                continue
            if config.num_tiles(max_rows, shape.num_columns) > NUM_COUNTERS:
                raise ValueError(f"{file}: {shape} with {max_rows} rows: too many tiles to be split")
        table[shape] = sorted(thresholds, key=lambda threshold: threshold.max_rows)
    return table


def _config(values: dict[str, Any] | None) -> Config:
    if values is None:
        return None
    return LtConfig(**values) if "tile" in values else ProductConfig(**values)


def table_json(gpu: Gpu, table: Table) -> dict[str, Any]:
    """What a table's file holds at least; thresholds that change nothing are left out."""
    products = []
    for shape, thresholds in table.items():
        kept = [
            threshold for threshold, after in zip(thresholds, [*thresholds[1:], None], strict=True)
            if after is None or after.config != threshold.config
        ]  # fmt: skip
        rows = [{"max_rows": rows, "config": config and dataclasses.asdict(config)} for rows, config in kept]
        products.append({**shape._asdict(), "rows": rows})
    return {"gpu": gpu._asdict(), "products": products}


def choose(table: Table, shape: Shape, num_rows: int, num_processors: int) -> Config:
    """The table's config where it has one for so many rows, else the rule's."""
    thresholds = table.get(shape, [])
    index = bisect_left([threshold.max_rows for threshold in thresholds], num_rows)
    if index < len(thresholds):
        return thresholds[index].config
    return rule(shape, num_rows, num_processors)


def rule(shape: Shape, num_rows: int, num_processors: int) -> ProductConfig | None:
    """Few rows: one block of them, and about one wave of programs over the columns. More: cuBLAS."""
    if num_rows > (MAX_RULE_FP8_ROWS if shape.fp8 else MAX_RULE_ROWS):
        return None
    wide = shape.dtype == "float32"
    block_m = MIN_BLOCK if wide else max(MIN_BLOCK, 1 << (num_rows - 1).bit_length())
    block_n, block_k = 64, 128 if block_m < 64 and not wide else 64  # squares of x are kept for all of a pass
    while block_n > MIN_BLOCK * 2 and -(-shape.num_columns // block_n) < num_processors:
        block_n //= 2
    num_tiles = -(-num_rows // block_m) * -(-shape.num_columns // block_n)
    num_passes = -(-shape.k // block_k)
    splits = max(1, min(num_processors // num_tiles, MAX_RULE_SPLITS, num_passes))
    many = block_m > MAX_NORM_ROWS
    config = ProductConfig(
        block_m, block_n, block_k, splits, num_warps=8 if many else 4, num_stages=5,
        norm_first=many and shape.op != "linear_add",
    )
    while config.shared_bytes(shape) > RULE_SHARED_BYTES:
        config = dataclasses.replace(config, num_stages=config.num_stages - 1)
    return config
