"""Which way a product is computed, from its shape alone."""

from __future__ import annotations

import json

import pytest

from voxcpm_core.kernels.product_configs import (
    OPS,
    RULE_SHARED_BYTES,
    TUNED,
    Gpu,
    LtConfig,
    ProductConfig,
    Shape,
    Threshold,
    choose,
    read_table,
    rule,
    slug,
    table_json,
)

NUM_PROCESSORS = 132
HOPPER_SHARED_BYTES = 227 * 1024  # of a program
QKV = Shape("norm_linear", 2560, 1024, "bfloat16")
SMALL, LARGE = ProductConfig(16, 32, 128, 2, 4, 5), ProductConfig(64, 64, 64, 1, 8, 3, pdl=True)
TABLE = {QKV: [Threshold(16, SMALL), Threshold(64, LARGE), Threshold(352, None), Threshold(704, LtConfig(165, 2))]}


H200, H100, A100 = Gpu("NVIDIA H200", "9.0", 132), Gpu("NVIDIA H100 80GB HBM3", "9.0", 132), Gpu("A100", "8.0", 108)


def write(folder, gpu, table) -> None:
    (folder / f"{slug(gpu.name)}.json").write_text(json.dumps(table_json(gpu, table)))


def test_a_table_is_read_as_it_was_written(tmp_path):
    write(tmp_path, H200, TABLE)
    assert (tmp_path / "nvidia-h200.json").exists()
    assert read_table(H200, tmp_path) == TABLE


def test_weights_in_float8_have_rows_of_their_own(tmp_path):
    small = QKV._replace(fp8=True)
    table = {**TABLE, small: [Threshold(16, LARGE), Threshold(352, SMALL)]}
    write(tmp_path, H200, table)
    read = read_table(H200, tmp_path)
    assert read == table
    assert choose(read, small, 1, NUM_PROCESSORS) == LARGE
    assert choose(TABLE, small, 1, NUM_PROCESSORS) == rule(small, 1, NUM_PROCESSORS)


def test_gpus_of_the_same_make_share_a_table(tmp_path):
    write(tmp_path, H200, TABLE)
    assert read_table(H100, tmp_path) == TABLE
    assert read_table(A100, tmp_path) == read_table(H100._replace(num_processors=114), tmp_path) == {}
    write(tmp_path, H100, {})
    assert read_table(H100, tmp_path) == {}


def test_the_tables_that_ship_fit_their_gpus():
    files = sorted(TUNED.glob("*.json"))
    assert files
    for file in files:
        gpu = Gpu(**json.loads(file.read_text())["gpu"])
        assert file.stem == slug(gpu.name)
        table = read_table(gpu)
        assert {shape.op for shape in table} == set(OPS)
        configs = [(shape, row.config) for shape, rows in table.items() for row in rows]
        own = [(shape, config) for shape, config in configs if isinstance(config, ProductConfig)]
        assert max(config.shared_bytes(shape) for shape, config in own) <= HOPPER_SHARED_BYTES
    assert read_table(H100) == read_table(H200)


def test_thresholds_that_change_nothing_are_left_out():
    table = {QKV: [Threshold(1, SMALL), Threshold(16, SMALL), Threshold(64, None), Threshold(352, None)]}
    (product,) = table_json(H200, table)["products"]
    assert [row["max_rows"] for row in product["rows"]] == [16, 352]


def test_too_many_tiles_to_be_split_are_refused(tmp_path):
    write(tmp_path, A100, {QKV: [Threshold(1 << 20, SMALL)]})
    with pytest.raises(ValueError, match=r"a100\.json: .*2560.*too many tiles"):
        read_table(A100, tmp_path)


@pytest.mark.parametrize("shape", [QKV._replace(fp8=True), QKV._replace(dtype="float32")], ids=str)
def test_a_library_is_named_for_values_of_16_bits_alone(shape, tmp_path):
    write(tmp_path, A100, {shape: [Threshold(704, LtConfig(165, 2))]})
    with pytest.raises(ValueError, match=r"a100\.json: .*2560.* 704 rows: no algorithm"):
        read_table(A100, tmp_path)


def test_the_table_decides_up_to_its_last_threshold_and_the_rule_above():
    found = [choose(TABLE, QKV, num_rows, NUM_PROCESSORS) for num_rows in (1, 16, 17, 64, 65, 352, 353, 705)]
    assert found == [SMALL, SMALL, LARGE, LARGE, None, None, LtConfig(165, 2), None]
    few = {QKV: [Threshold(16, None)]}
    assert choose(few, QKV, 16, NUM_PROCESSORS) is None
    assert choose(few, QKV, 17, NUM_PROCESSORS) == rule(QKV, 17, NUM_PROCESSORS)
    other = QKV._replace(dtype="float32")
    assert choose(TABLE, other, 1, NUM_PROCESSORS) == rule(other, 1, NUM_PROCESSORS)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("size", [(2048, 6144), (1024, 4096), (12288, 2048), (1280, 1024), (64, 32)])
def test_the_rule_fits_every_gpu_and_fills_it_about_once(op, size, dtype, fp8):
    shape, most_rows = Shape(op, *size, dtype, fp8), 128 if fp8 else 64
    for num_rows in (1, 16, 22, 64, most_rows):
        config = rule(shape, num_rows, NUM_PROCESSORS)
        assert config.shared_bytes(shape) <= RULE_SHARED_BYTES
        assert config.num_stages >= 2
        num_programs = config.num_tiles(num_rows, shape.num_columns) * config.splits
        assert config.splits == 1 or num_programs <= NUM_PROCESSORS
    assert rule(shape, most_rows + 1, NUM_PROCESSORS) is None
