"""The search for the fastest products, with compilers and clocks of its own, since it needs a GPU otherwise."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this machine")

from benchmarks.card import Card
from benchmarks.products.candidates import SHARED_BYTES, candidates
from benchmarks.products.search import Point, Search
from benchmarks.products.shapes import release_shapes, thinned
from benchmarks.products.timing import Inputs, make_ops, relative_error
from benchmarks.products.work import work_of
from voxcpm_core.kernels.product_configs import (
    NUM_COUNTERS,
    Gpu,
    LtConfig,
    ProductConfig,
    Shape,
    Threshold,
    read_table,
    table_json,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_PROCESSORS = 132
SHAPE = Shape("linear_add", 1024, 4096, "bfloat16")


def test_every_number_of_rows_finds_a_threshold_near_by():
    assert thinned({1, 2, 5, 10, 16, 18, 22, 40, 44, 50}) == [1, 5, 16, 22, 50]
    assert thinned({600, 704, 1056, 1320, 1360, 1408}) == [704, 1056, 1320, 1408]
    shapes = release_shapes()
    dit = Shape("norm_linear", 2560, 1024, "bfloat16")
    assert shapes[dit][-1] == 22 * 64
    assert shapes[Shape("norm_swiglu", 12288, 2048, "bfloat16")][-1] == 64
    for num_rows in (22 * batch for batch in range(2, 65)):
        assert min(rows for rows in shapes[dit] if rows >= num_rows) <= 2.1 * num_rows


def test_candidates_fit_and_are_there_for_every_product():
    for shape, rows in release_shapes().items():
        for num_rows in rows:
            found = candidates(shape, num_rows, NUM_PROCESSORS)
            assert found
            assert len(set(found)) == len(found)
            for config in found:
                assert config.shared_bytes(shape) <= SHARED_BYTES
                assert config.num_tiles(num_rows, shape.num_columns) <= NUM_COUNTERS


def compile_most(jobs, seconds):
    """One config does not compile."""
    return {job for job in jobs if job.config.block_n != 64}


def measure(point, configs):
    """Half of cuBLAS's time for splits and dependent launch each; one config gives wrong results."""
    return {
        config: 10.0 if config is None else 20.0 / config.splits / (2 if config.pdl else 1)
        for config in configs if config is None or config.num_stages != 5
    }  # fmt: skip


def no_libraries(point):
    return []


def test_the_fastest_of_those_that_work_is_found(tmp_path):
    search = Search({SHAPE: [16, 64]}, compile_most, measure, no_libraries, seconds=60)
    heard = []
    search.run(NUM_PROCESSORS, with_pdl=True, progress=lambda point, timings: heard.append(point))
    assert heard == [Point(SHAPE, 16), Point(SHAPE, 64)] * 2
    thresholds = search.table()[SHAPE]
    assert [threshold.max_rows for threshold in thresholds] == [16, 64]
    for max_rows, config in thresholds:
        usable = [c for c in candidates(SHAPE, max_rows, NUM_PROCESSORS) if c.block_n != 64 and c.num_stages != 5]
        assert config.splits == max(c.splits for c in usable)
        assert dataclasses.replace(config, pdl=False) in usable
        assert config.pdl
    gpu = Gpu("GPU", "9.0", NUM_PROCESSORS)
    (tmp_path / "gpu.json").write_text(json.dumps(table_json(gpu, search.table())))
    assert read_table(gpu, tmp_path)[SHAPE][-1] == thresholds[-1]


def test_a_config_that_is_nearly_as_fast_as_the_best_is_used_for_fewer_rows_too():
    def close(point, configs):
        return {config: 10.0 + (0.2 if config.splits * point.num_rows == 16 else 0.0) for config in configs if config}

    search = Search({SHAPE: [8, 16]}, compile_most, close, no_libraries, seconds=60)
    search.run(NUM_PROCESSORS, with_pdl=False, progress=lambda point, timings: None)
    (few, many) = search.table()[SHAPE]
    assert few.config == many.config


def test_libraries_are_held_against_the_table_and_leave_fewer_rows_as_they_are():
    own, named = ProductConfig(64, 64, 128, 1, 4, 3), LtConfig(7, 2)
    before = {SHAPE: [Threshold(16, own), Threshold(900, None), Threshold(1408, own)]}
    asked = []

    def timed(point, configs):
        asked.append((point.num_rows, configs))
        return {config: 3.0 if config is None else 2.0 if config == named else 1.0 for config in configs}

    search = Search({SHAPE: [704, 1408]}, compile_most, timed, lambda point: [named], seconds=60)
    search.run_libraries(before, NUM_PROCESSORS, progress=lambda point, timings: None)
    assert asked == [(704, [None, named]), (1408, [None, named])], "block_n of 64 does not compile"
    table = search.table_over(before, NUM_PROCESSORS)
    assert table[SHAPE] == [Threshold(16, own), Threshold(703, None), Threshold(704, named), Threshold(1408, named)]


def test_what_torch_cannot_do_leaves_the_rest():
    search = Search({SHAPE: [704]}, compile_most, lambda *_: {LtConfig(7, 2): 1.0}, lambda point: [], seconds=60)
    search.run_libraries({}, NUM_PROCESSORS, progress=lambda point, timings: None)
    assert search.table() == {SHAPE: [Threshold(704, LtConfig(7, 2))]}


def test_a_table_keeps_what_libraries_were_not_tried_for():
    own, named = ProductConfig(64, 64, 128, 1, 4, 3), LtConfig(7, 2)
    search = Search({SHAPE: [704]}, compile_most, lambda *_: {named: 1.0}, lambda point: [named], seconds=60)
    search.run_libraries({}, NUM_PROCESSORS, progress=lambda point, timings: None)
    assert search.table_over({}, NUM_PROCESSORS) == {}, "few rows are left to the rule"
    before = {SHAPE: [Threshold(1408, own)]}
    found = [Threshold(703, own), Threshold(704, named), Threshold(1408, own)]
    assert search.table_over(before, NUM_PROCESSORS) == {SHAPE: found}


def test_what_was_found_before_an_error_is_kept():
    def lost(point, configs):
        if point.num_rows == 64:
            raise RuntimeError("the device is lost")
        return measure(point, configs)

    search = Search({SHAPE: [16, 64]}, compile_most, lost, no_libraries, seconds=60)
    with pytest.raises(RuntimeError, match="lost"):
        search.run(NUM_PROCESSORS, with_pdl=False, progress=lambda point, timings: None)
    assert [threshold.max_rows for threshold in search.table()[SHAPE]] == [16]


def test_nothing_is_measured_when_the_time_is_over():
    search = Search({SHAPE: [16]}, compile_most, measure, no_libraries, seconds=0)
    search.run(NUM_PROCESSORS, with_pdl=True, progress=lambda point, timings: None)
    assert search.table() == {}


@pytest.mark.parametrize(
    ("op", "fp8"), [("norm_linear", False), ("norm_swiglu", False), ("linear_add", False), ("linear_add", True)]
)
@pytest.mark.parametrize("config", [None, ProductConfig(16, 32, 64, 2, 4, 3)], ids=["cublas", "own"])
def test_results_are_held_against_float64(op, fp8, config):
    torch.manual_seed(0)
    inputs = Inputs(Shape(op, 48, 96, "float32", fp8), DEVICE, cache_bytes=0)
    x, residual = inputs.rows(5)
    kept = residual.clone()
    expected = inputs.expected(x, residual)
    assert relative_error(inputs, make_ops(config, DEVICE), x, residual, expected) < 1e-6
    assert relative_error(inputs, make_ops(config, DEVICE), x, residual, expected * 1.01) > 5e-3
    assert torch.equal(residual, kept)


def test_the_limit_is_bandwidth_for_few_rows_and_arithmetic_for_many():
    card = Card(gb_per_s=1000.0, tf_per_s=100.0)
    few, many = work_of(SHAPE, 1), work_of(SHAPE, 4096)
    assert few.num_bytes == 2 * (1024 * 4096 + 4096 + 2 * 1024)
    assert math.isclose(few.limit_us(card), few.num_bytes / 1e6)
    assert math.isclose(many.limit_us(card), 2 * 4096 * 1024 * 4096 / 1e8)
