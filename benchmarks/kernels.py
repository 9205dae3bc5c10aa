"""The kernels of a decode step on this GPU: `python -m benchmarks.kernels [--tune TABLE.json] [--json FILE]`.

Times attention and the like beside torch. Then times every candidate for each product of the released models and its
numbers of rows, checks the results against float64, and prints the best beside cuBLAS with its own small kernels.
`--tune` writes the table that the engine reads, which belongs into voxcpm_core/kernels/tuned/ under the name that is
printed. Takes about four minutes on 16 cores. `--libraries` takes two: it tries cuBLASLt's algorithms for products
with many rows beside what the table has.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.card import CARDS
from benchmarks.other_kernels import time_others
from benchmarks.products.compiling import compile_all
from benchmarks.products.search import Point, Search, Timings
from benchmarks.products.shapes import LIBRARY_ROWS, library_shapes, release_shapes
from benchmarks.products.timing import GraphTimer, Inputs, error_limit, make_ops, relative_error
from benchmarks.products.work import work_of
from voxcpm_core.kernels.cublaslt import TYPES, Problem, offered
from voxcpm_core.kernels.product_configs import (
    TUNED,
    Config,
    Gpu,
    LtConfig,
    Table,
    read_table,
    slug,
    table_json,
)
from voxcpm_core.kernels.triton_layer_ops import gpu_of

NUM_CALLS = 32  # in a graph, at least
ROUNDS = (2, 2, 2, 3)  # replays
DEVICE = torch.device("cuda")


class Measuring:
    """Checks and times configs; the weights of one shape stay until the next one comes."""

    def __init__(self) -> None:
        self.num_failed = 0
        self._inputs: Inputs | None = None
        self._timer = GraphTimer(DEVICE)
        self._cache_bytes = torch.cuda.get_device_properties(DEVICE).L2_cache_size

    def __call__(self, point: Point, configs: list[Config]) -> Timings:
        if self._inputs is None or self._inputs.shape != point.shape:
            self._inputs = None  # first, so that both are never there
            self._inputs = Inputs(point.shape, DEVICE, self._cache_bytes)
        inputs = self._inputs
        x, residual = inputs.rows(point.num_rows)
        expected = inputs.expected(x, residual)
        num_copies = len(inputs.linears)
        timings: Timings = {}
        for config in configs:
            try:
                ops = make_ops(config, DEVICE)
                error = relative_error(inputs, ops, x, residual, expected)
                if not error <= error_limit(point.shape, config):
                    raise ArithmeticError(f"relative error {error:.1e}")
                target = residual.clone()
                timings[config] = self._timer.microseconds(
                    lambda number, ops=ops, target=target: inputs.run(ops, x, target, number % num_copies),
                    max(NUM_CALLS, num_copies), ROUNDS,
                )  # fmt: skip
            except Exception as failure:  # a kernel that does not fit or is wrong; the others go on
                self.num_failed += 1
                print(f"  FAIL {_name(point)} {_config_name(config)}: {type(failure).__name__}: {str(failure)[:300]}",
                      flush=True)  # fmt: skip
                torch.cuda.synchronize()  # a device that is lost ends all here
                self._timer = GraphTimer(DEVICE)  # a capture that broke off leaves its memory pool in use
        return timings


def _name(point: Point) -> str:
    shape = point.shape
    return f"{shape.op:11} {shape.n:5} {shape.k:5} {point.num_rows:5}"


def _config_name(config: Config) -> str:
    if config is None:
        return "cuBLAS"
    if isinstance(config, LtConfig):
        return f"cuBLASLt {config.tile} {config.custom}"
    sizes = f"{config.block_m}x{config.block_n}x{config.block_k}/{config.splits}"
    return f"{sizes} {config.num_warps}w {config.num_stages}s{' norm first' * config.norm_first}{' pdl' * config.pdl}"


def row_of(point: Point, timings: Timings, gpu_name: str) -> dict[str, Any]:
    """What is known of a point; `share_of_limit` is that of the card's bandwidth or tensor cores, whichever binds."""
    best = min(timings, key=timings.__getitem__)
    work = work_of(point.shape, point.num_rows)
    best_us, card = timings[best], CARDS.get(gpu_name)
    return {
        **point.shape._asdict(), "rows": point.num_rows, "config": _config_name(best), "us": best_us,
        "gb_per_s": work.num_bytes / best_us / 1e3, "tflops": work.num_flops / best_us / 1e6,
        "share_of_limit": card and work.limit_us(card) / best_us, "cublas_us": timings.get(None),
        "all_us": {_config_name(config): us for config, us in timings.items()},
    }  # fmt: skip


def print_row(point: Point, timings: Timings, gpu_name: str) -> None:
    if not timings:
        print(f"{_name(point)}  nothing could be measured", flush=True)
        return
    row = row_of(point, timings, gpu_name)
    share, cublas_us = (float("nan") if row[key] is None else row[key] for key in ("share_of_limit", "cublas_us"))
    print(f"{_name(point)}  {row['config']:26} {row['us']:7.2f} {row['gb_per_s']:6.0f} {row['tflops']:6.1f} "
          f"{100 * share:4.0f} {cublas_us:7.2f}", flush=True)  # fmt: skip


def library_configs(point: Point) -> list[LtConfig]:
    """All that cuBLASLt offers for a product with many rows; weights in float8 are not multiplied as they are."""
    shape, dtype = point.shape, getattr(torch, point.shape.dtype)
    if shape.fp8 or dtype not in TYPES or point.num_rows < LIBRARY_ROWS:
        return []
    return offered(Problem(torch.cuda.current_device(), point.num_rows, shape.n, shape.k, dtype))


def new_table(search: Search, gpu: Gpu, libraries: bool) -> Table:
    """What was found until now, and what the engine's table for that GPU has of other products."""
    before = read_table(gpu)
    if libraries:
        return search.table_over(before, gpu.num_processors)
    timed = {point.shape.fp8 for point in search.found}
    return {**{shape: rows for shape, rows in before.items() if shape.fp8 not in timed}, **search.table()}


def write(
    search: Search, table: Table, others: list[dict[str, Any]], gpu: Gpu, tune: Path | None, report: Path | None
) -> None:
    """What was found until now."""
    versions = {"torch": torch.__version__, "triton": triton.__version__}
    if tune:
        tune.write_text(json.dumps({**versions, **table_json(gpu, table)}, indent=1) + "\n")
        print(f"wrote {tune}; the engine reads {TUNED / slug(gpu.name)}.json")
    if report:
        rows = [row_of(point, timings, gpu.name) for point, timings in search.found.items() if timings]
        found = {**versions, "gpu": gpu._asdict(), "products": rows, "others": others}
        report.write_text(json.dumps(found, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--fp8", action="store_true", help="products with weights in float8 in the others' place")
    which.add_argument("--libraries", action="store_true", help="products with many rows, by cuBLASLt's algorithms")
    parser.add_argument("--tune", type=Path, help="write the engine's table there, with what it has of others")
    parser.add_argument("--json", type=Path, help="write all timings there")
    parser.add_argument("--seconds", type=float, default=230.0, help="stop measuring after that")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 1
    gpu = gpu_of(DEVICE)
    print(f"{gpu.name}, torch {torch.__version__}, triton {triton.__version__}")
    others = [] if arguments.libraries else time_others(DEVICE)
    measuring = Measuring()
    shapes = library_shapes() if arguments.libraries else release_shapes(fp8=arguments.fp8)
    search = Search(shapes, compile_all, measuring, library_configs, arguments.seconds)

    def progress(point: Point, timings: Timings) -> None:
        print_row(point, timings, gpu.name)

    print("op              n     k  rows  best                            us   GB/s   TF/s  %lim  cuBLAS us")
    try:
        if arguments.libraries:
            search.run_libraries(read_table(gpu), gpu.num_processors, progress)
        else:
            with_pdl = torch.cuda.get_device_capability(DEVICE) >= (9, 0)
            search.run(gpu.num_processors, with_pdl, progress)
    finally:
        table = new_table(search, gpu, arguments.libraries)
        write(search, table, others, gpu, arguments.tune, arguments.json)
    print(f"{measuring.num_failed} candidates failed" if measuring.num_failed else "all candidates passed")
    return min(measuring.num_failed, 1)


if __name__ == "__main__":
    sys.exit(main())
