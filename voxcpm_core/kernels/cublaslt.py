"""Products by an algorithm of cuBLASLt that is named, through ctypes.

torch takes the first algorithm that the library suggests for a shape, which for some is not the fastest by far
(`benchmarks/kernels.py`). Names, numbers and layouts are those of the library's C interface, which CUDA 12 and 13
share (https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api).
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.kernels.product_configs import LtConfig

MAX_OFFERED = 32
NOT_SUPPORTED = 15  # a status: nothing is offered
ALIGNMENT = 256  # bytes, which the library presumes unless told otherwise

COMPUTE_32F, R_32F = 68, 0  # sums, and the two scales
TYPES = {torch.bfloat16: 14, torch.float16: 2}
DESC_TRANSA, OP_T = 3, 1
ALGO_TILE, ALGO_SPLITS, ALGO_CUSTOM = 1, 2, 5


class Algorithm(ctypes.Structure):
    """Opaque."""

    _fields_ = [("data", c_uint64 * 8)]


class Offer(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", Algorithm), ("workspace_bytes", c_size_t), ("state", c_int), ("waves", c_float),
        ("reserved", c_int * 4),
    ]  # fmt: skip


class Problem(NamedTuple):
    """out [rows, n] = x [rows, k] W^T, on a device."""

    device: int
    rows: int
    n: int
    k: int
    dtype: torch.dtype


class Layouts(NamedTuple):
    """Of a problem, in the library's column-major terms, in which all are transposed: out^T = W x^T."""

    product: c_void_p
    weight: c_void_p
    x: c_void_p
    out: c_void_p


class Plan(NamedTuple):
    layouts: Layouts
    algorithm: Algorithm


def linear(x: Tensor, weight: Tensor, config: LtConfig | None) -> Tensor:
    """x W^T: [..., k] -> [..., n]. As torch has it if `config` is None or not offered, or memory is not aligned.

    Safe in a CUDA graph.
    """
    if config is not None:
        rows = x.flatten(0, -2).contiguous()
        out = rows.new_empty(len(rows), len(weight))
        if _launch(rows, weight, out, config, alpha=1.0, beta=0.0):
            return out.unflatten(0, x.shape[:-1])
    return F.linear(x, weight)


def add_product(total: Tensor, rows: Tensor, weight: Tensor, scale: float, config: LtConfig | None) -> None:
    """total [rows, n] += scale * rows [rows, k] W^T, as `linear` runs it; `total` is contiguous."""
    rows = rows.contiguous()
    if config is None or not _launch(rows, weight, total, config, alpha=scale, beta=1.0):
        total.addmm_(rows, weight.t(), alpha=scale)


def offered(problem: Problem) -> list[LtConfig]:
    """What may be named for a problem, the library's own choice first."""
    return list(dict.fromkeys(_config(offer) for offer in _offers(problem, _layouts(problem))))


def _launch(rows: Tensor, weight: Tensor, out: Tensor, config: LtConfig, alpha: float, beta: float) -> bool:
    """out = alpha * rows W^T + beta * out; False: not done, since it cannot be done so."""
    assert weight.is_contiguous()
    assert out.is_contiguous()
    problem = Problem(rows.get_device(), len(rows), *weight.shape, rows.dtype)
    plan = _plan(problem, config)
    if plan is None or any(tensor.data_ptr() % ALIGNMENT for tensor in (rows, weight, out)):
        return False
    layouts = plan.layouts
    _check(_library().cublasLtMatmul(
        _handle(problem.device), layouts.product, byref(c_float(alpha)), weight.data_ptr(), layouts.weight,
        rows.data_ptr(), layouts.x, byref(c_float(beta)), out.data_ptr(), layouts.out, out.data_ptr(), layouts.out,
        byref(plan.algorithm), None, 0, _stream(problem.device),
    ))  # fmt: skip
    return True


@cache
def _plan(problem: Problem, config: LtConfig) -> Plan | None:
    """Kept for good: an engine has a few for each size of a batch."""
    layouts = _layouts(problem)
    for offer in _offers(problem, layouts):
        if _config(offer) == config:
            return Plan(layouts, offer.algorithm)
    return None


def _offers(problem: Problem, layouts: Layouts) -> list[Offer]:
    """Those that sum over K in one go, without workspace: that is a preference's default.

    With some they would count their tiles there, and each launch be two: the first sets the count to zero.
    """
    library, offers, count, preference = _library(), (Offer * MAX_OFFERED)(), c_int(), c_void_p()
    _check(library.cublasLtMatmulPreferenceCreate(byref(preference)))
    status = library.cublasLtMatmulAlgoGetHeuristic(
        _handle(problem.device), layouts.product, layouts.weight, layouts.x, layouts.out, layouts.out, preference,
        MAX_OFFERED, offers, byref(count),
    )  # fmt: skip
    _check(library.cublasLtMatmulPreferenceDestroy(preference))
    if status != NOT_SUPPORTED:
        _check(status)
    return [offer for offer in offers[: count.value] if offer.state == 0 and _attribute(offer, ALGO_SPLITS) <= 1]


def _config(offer: Offer) -> LtConfig:
    return LtConfig(_attribute(offer, ALGO_TILE), _attribute(offer, ALGO_CUSTOM))


def _attribute(offer: Offer, which: int) -> int:
    value, written = c_int(), c_size_t()
    _check(_library().cublasLtMatmulAlgoConfigGetAttribute(
        byref(offer.algorithm), which, byref(value), ctypes.sizeof(value), byref(written)
    ))  # fmt: skip
    return value.value


def _layouts(problem: Problem) -> Layouts:
    library, product, transposed = _library(), c_void_p(), c_int(OP_T)
    _check(library.cublasLtMatmulDescCreate(byref(product), COMPUTE_32F, R_32F))
    _check(library.cublasLtMatmulDescSetAttribute(
        product, DESC_TRANSA, byref(transposed), ctypes.sizeof(transposed)
    ))  # fmt: skip

    def matrix(num_rows: int, num_columns: int) -> c_void_p:
        layout = c_void_p()
        kind = TYPES[problem.dtype]
        _check(library.cublasLtMatrixLayoutCreate(byref(layout), kind, num_rows, num_columns, num_rows))
        return layout

    _, rows, n, k, _ = problem
    return Layouts(product, matrix(k, n), matrix(k, rows), matrix(n, rows))


@cache
def _handle(device: int) -> c_void_p:
    handle = c_void_p()
    with torch.cuda.device(device):
        _check(_library().cublasLtCreate(byref(handle)))
    return handle


def _stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


@cache
def _library() -> Any:
    """The one that torch has loaded; its builds for CUDA link it dynamically."""
    major = str(torch.version.cuda).split(".")[0]
    library = ctypes.CDLL(f"libcublasLt.so.{major}")
    pointer = POINTER(c_void_p)
    for name, arguments in {
        "cublasLtCreate": [pointer],
        "cublasLtMatmulDescCreate": [pointer, c_int, c_int],
        "cublasLtMatmulDescSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
        "cublasLtMatrixLayoutCreate": [pointer, c_int, c_uint64, c_uint64, c_int64],
        "cublasLtMatmulPreferenceCreate": [pointer],
        "cublasLtMatmulPreferenceDestroy": [c_void_p],
        "cublasLtMatmulAlgoGetHeuristic": [c_void_p] * 7 + [c_int, c_void_p, POINTER(c_int)],
        "cublasLtMatmulAlgoConfigGetAttribute": [c_void_p, c_int, c_void_p, c_size_t, POINTER(c_size_t)],
        "cublasLtMatmul": [c_void_p] * 14 + [c_size_t, c_void_p],
    }.items():
        getattr(library, name).argtypes = arguments
    return library


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"cuBLASLt failed with status {status}")
