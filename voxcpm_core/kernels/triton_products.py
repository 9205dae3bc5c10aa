"""The products of a block as one Triton kernel: RMS norm before, gating or the residual sum after, W streamed once.

Weights in float8 are widened on their way, and their columns scaled at the end.

A program holds BLOCK_M rows and BLOCK_N columns of the result; where few programs would run, K is split over several,
and the one that arrives last sums their parts in a fixed order. The norm's weight is part of W; its squares of x are
summed in the passes of the products or in one of their own before, and each row is scaled at the end.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.product_configs import NUM_COUNTERS, NormWay, ProductConfig, Shape
from voxcpm_core.kernels.triton_fp8 import knows_float8, widened
from voxcpm_core.kernels.triton_norm import rms_norm, summed_squares
from voxcpm_core.kernels.triton_pdl import LINE_BYTES, grid_control, prefetch


@triton.jit
def _tile(base_ptr, num_rows, k, K: tl.constexpr, ROWS: tl.constexpr, BLOCK_K: tl.constexpr, EVICT: tl.constexpr):
    """Columns k to k + BLOCK_K of the first ROWS rows at `base_ptr`, zero outside of [num_rows, K]."""
    row, at = tl.arange(0, ROWS), tl.arange(0, BLOCK_K)
    mask = (row < num_rows)[:, None]
    if K % BLOCK_K != 0:
        mask = mask & (k + at < K)[None, :]
    return tl.load(base_ptr + k + (row[:, None] * K + at[None, :]), mask=mask, other=0.0, eviction_policy=EVICT)


@triton.jit
def _sums(
    x_ptr, gate_ptr, up_ptr, num_rows, num_columns, first, last,
    K: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr, FP8: tl.constexpr, SPAN: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Over K from `first` to `last`, SPAN or less: products, also with the second W where GATED, and rows' squares."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    before = tl.zeros((BLOCK_M,), tl.float32)
    squares = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
    if NORM == "before":
        before = summed_squares(x_ptr, tl.arange(0, BLOCK_M) < num_rows, first, last, K, SPAN, BLOCK_M)
    for k in range(first, last, BLOCK_K):
        x = _tile(x_ptr, num_rows, k, K, BLOCK_M, BLOCK_K, "")
        weight = _tile(gate_ptr, num_columns, k, K, BLOCK_N, BLOCK_K, "evict_first")
        if NORM == "beside":
            wide = x.to(tl.float32)
            squares += wide * wide
        if FP8 != "":
            weight = widened(weight, x.dtype, FP8 == "known")
        acc = tl.dot(x, tl.trans(weight), acc, input_precision="ieee")
        if GATED:
            weight = _tile(up_ptr, num_columns, k, K, BLOCK_N, BLOCK_K, "evict_first")
            if FP8 != "":
                weight = widened(weight, x.dtype, FP8 == "known")
            up = tl.dot(x, tl.trans(weight), up, input_precision="ieee")
    return acc, up, before if NORM == "before" else tl.sum(squares, axis=1)


@triton.jit
def _finish(
    acc, up, squares, residual, scales, up_scales, out_ptr, is_out, scale, eps,
    N: tl.constexpr, K: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr, ADD: tl.constexpr, FP8: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """What follows the product, in fp32, and the store; `out_ptr` points to the tile's corner."""
    if FP8 != "":
        acc, up = acc * scales[None, :], up * up_scales[None, :]
    if NORM != "":
        inverse = tl.rsqrt(squares / K + eps)[:, None]
        acc, up = acc * inverse, up * inverse
    if GATED:
        acc = acc / (1.0 + tl.exp(-acc)) * up
    if ADD:
        acc = residual.to(tl.float32) + acc * scale
    at = tl.arange(0, BLOCK_M)[:, None] * N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=is_out)


@triton.jit
def _store_part(
    acc, up, squares, parts_ptr, split,
    NORM: tl.constexpr, GATED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A tile's parts are sums, those of `up`, and one sum of squares a row, split after split."""
    parts_ptr += split * (BLOCK_M * (BLOCK_N * (1 + GATED) + 1))
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(parts_ptr + inside, acc)
    if GATED:
        tl.store(parts_ptr + BLOCK_M * BLOCK_N + inside, up)
    if NORM != "":
        tl.store(parts_ptr + BLOCK_M * BLOCK_N * (1 + GATED) + tl.arange(0, BLOCK_M), squares)


@triton.jit
def _summed_parts(
    parts_ptr,
    NORM: tl.constexpr, GATED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """All splits' in their order, read past the L1 cache, which does not see other processors' stores."""
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    squares = tl.zeros((BLOCK_M,), tl.float32)
    for _ in range(SPLITS):
        acc += tl.load(parts_ptr + inside, cache_modifier=".cg")
        if GATED:
            up += tl.load(parts_ptr + BLOCK_M * BLOCK_N + inside, cache_modifier=".cg")
        if NORM != "":
            squares_at = BLOCK_M * BLOCK_N * (1 + GATED) + tl.arange(0, BLOCK_M)
            squares += tl.load(parts_ptr + squares_at, cache_modifier=".cg")
        parts_ptr += BLOCK_M * (BLOCK_N * (1 + GATED) + 1)
    return acc, up, squares


@triton.jit(do_not_specialize=["num_rows"])
def _product(
    x_ptr, weight_ptr, scales_ptr, residual_ptr, out_ptr, parts_ptr, counters_ptr, num_rows, scale, eps,
    N: tl.constexpr, K: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr, ADD: tl.constexpr, FP8: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr, LINE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """x: [num_rows, K]; W: [N, K], twice that where GATED; residual and out: [num_rows, N], which may be the same.

    NORM: "" for none, else when the squares are summed, "beside" the products or "before". FP8: "" where W is of the
    type of x; else it is float8 as uint8, "known" to the GPU or not, and scales: [N].
    """
    block, tile, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    corner = (block * BLOCK_M).to(tl.int64)  # its row; 64 bits for what is multiplied by it
    column = (tile * BLOCK_N).to(tl.int64)
    # Not tl.cdiv: Triton 3.6 makes a tensor of it.
    per_split: tl.constexpr = (K + BLOCK_K * SPLITS - 1) // (BLOCK_K * SPLITS) * BLOCK_K
    first = split * per_split
    last = tl.minimum(first + per_split, K)
    rows_left, columns_left = num_rows - block * BLOCK_M, N - tile * BLOCK_N
    x_ptr += corner * K
    gate_ptr = weight_ptr + column * K
    up_ptr = gate_ptr + N * K
    if PDL:
        grid_control("launch_dependents")
        # The weights are there already; all else waits for the kernel before.
        prefetch(gate_ptr, columns_left, first, last, K, BLOCK_N, BLOCK_K, LINE)
        if GATED:
            prefetch(up_ptr, columns_left, first, last, K, BLOCK_N, BLOCK_K, LINE)
        grid_control("wait")
    is_out = (tl.arange(0, BLOCK_M) < rows_left)[:, None] & (tl.arange(0, BLOCK_N) < columns_left)[None, :]
    out_ptr += corner * N + column
    scales, up_scales, residual = 1.0, 1.0, 0.0
    if FP8 != "":
        column_at = tl.arange(0, BLOCK_N)
        scales_ptr += column
        scales = tl.load(scales_ptr + column_at, mask=column_at < columns_left, other=0.0)
        up_scales = scales
        if GATED:
            up_scales = tl.load(scales_ptr + N + column_at, mask=column_at < columns_left, other=0.0)
    if ADD:  # asked for ahead of its use, since nothing else hides the time that it takes
        at = tl.arange(0, BLOCK_M)[:, None] * N + tl.arange(0, BLOCK_N)[None, :]
        residual = tl.load(residual_ptr + corner * N + column + at, mask=is_out, other=0.0)
    acc, up, squares = _sums(
        x_ptr, gate_ptr, up_ptr, rows_left, columns_left, first, last,
        K, NORM, GATED, FP8, per_split, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    if SPLITS == 1:
        _finish(acc, up, squares, residual, scales, up_scales, out_ptr, is_out, scale, eps,
                N, K, NORM, GATED, ADD, FP8, BLOCK_M, BLOCK_N)  # fmt: skip
    else:
        number = block * tl.num_programs(1) + tile
        parts_ptr += number.to(tl.int64) * (SPLITS * BLOCK_M * (BLOCK_N * (1 + GATED) + 1))
        _store_part(acc, up, squares, parts_ptr, split, NORM, GATED, BLOCK_M, BLOCK_N)
        tl.debug_barrier()  # all threads' stores come before the count, which one thread does
        if tl.atomic_add(counters_ptr + number, 1, sem="acq_rel") == SPLITS - 1:
            acc, up, squares = _summed_parts(parts_ptr, NORM, GATED, BLOCK_M, BLOCK_N, SPLITS)
            _finish(acc, up, squares, residual, scales, up_scales, out_ptr, is_out, scale, eps,
                    N, K, NORM, GATED, ADD, FP8, BLOCK_M, BLOCK_N)  # fmt: skip
            tl.store(counters_ptr + number, 0)


def new_counters(device: torch.device) -> Tensor:
    """Zeros for split products, which leave them so. Products that may run at the same time must not share them."""
    return torch.zeros(NUM_COUNTERS, dtype=torch.int32, device=device)


def constants(shape: Shape, config: ProductConfig, norm: NormWay, knows_fp8: bool = True) -> dict[str, Any]:
    """The kernel's compile-time arguments; `knows_fp8`: the GPU has float8."""
    return {
        "N": shape.num_columns, "K": shape.k,
        "NORM": "" if norm in ("apart", "none") else norm,
        "GATED": shape.op == "norm_swiglu", "ADD": shape.op == "linear_add",
        "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k, "SPLITS": config.splits,
        "LINE": min(LINE_BYTES // shape.weight_itemsize, config.block_k), "PDL": config.pdl,
        "FP8": ("known" if knows_fp8 else "unknown") if shape.fp8 else "",
    }  # fmt: skip


def options(config: ProductConfig) -> dict[str, Any]:
    """What the compiler is told besides."""
    dependent = {"launch_pdl": True} if config.pdl else {}
    return {"num_warps": config.num_warps, "num_stages": config.num_stages, **dependent}


def product(
    shape: Shape, config: ProductConfig, counters: Tensor, x: Tensor, linear: Linear,
    eps: float | None = None, residual: Tensor | None = None, scale: float = 1.0, in_place: bool = False,
) -> Tensor:
    """Run the kernel as `shape.op` of LayerOps says: x [..., k], residual and result [..., num_columns].

    linear: its weight [n, k] is contiguous; what its adapters add is left to the caller. eps: of the RMS norm of x;
    None: it is normed already, or the result will be scaled. residual: of `linear_add`, written over and returned if
    `in_place`. Safe in a CUDA graph; the parts of a split product are torch's memory like the result's.
    """
    weight = linear.weight.view(torch.uint8) if shape.fp8 else linear.weight
    assert weight.is_contiguous()
    assert (linear.scales is not None) == shape.fp8
    norm: NormWay = "none" if eps is None else config.norm_way(shape.op)
    assert eps is None or norm != "none"
    x = rms_norm(x, None, eps) if norm == "apart" and eps is not None else x.contiguous()
    num_rows, num_columns = x.shape[:-1].numel(), shape.num_columns
    if residual is not None:
        residual = residual.contiguous()
    out = residual if residual is not None and in_place else x.new_empty(*x.shape[:-1], num_columns)
    blocks, tiles = triton.cdiv(num_rows, config.block_m), triton.cdiv(num_columns, config.block_n)
    parts = x
    if config.splits > 1:
        assert blocks * tiles <= counters.numel()
        values = config.block_m * (config.block_n * (2 if shape.op == "norm_swiglu" else 1) + 1)
        parts = x.new_empty(blocks * tiles * config.splits * values, dtype=torch.float32)
    _product[(blocks, tiles, config.splits)](
        x, weight, x if linear.scales is None else linear.scales, x if residual is None else residual, out, parts,
        counters, num_rows, scale, eps or 0.0,
        **constants(shape, config, norm, knows_float8(x.device)), **options(config),
    )  # fmt: skip
    return out
