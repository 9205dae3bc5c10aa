"""One product with so many rows: is it right, and how long does it take when its weights come from memory?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.kernels.fp8 import quantised
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.product_configs import Config, Shape
from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps

EPS = 1e-5
# |found - expected| / |expected| over the whole result; one wrong tile is more.
LIMITS = {"bfloat16": 1e-2, "float32": 1e-5}
FP8_ROWS_LIMIT = 6e-2  # where rows are rounded to float8, which puts each value off by 2 to 3 % of itself
MIN_COPIES, MAX_COPIES = 8, 96
NUM_REPEATS = 3  # of a split product, whose programs arrive in another order each time


def error_limit(shape: Shape, config: Config) -> float:
    """Of a product run like that, beside what its weights, in float8 or not, give in float64."""
    return FP8_ROWS_LIMIT if shape.fp8 and config is None else LIMITS[shape.dtype]


class Inputs:
    """Fresh random inputs of a product, and its weights as often as it takes to be larger than the L2 cache."""

    def __init__(self, shape: Shape, device: torch.device, cache_bytes: int) -> None:
        dtype = getattr(torch, shape.dtype)
        weight_bytes = shape.n * shape.k * shape.weight_itemsize
        num_copies = max(MIN_COPIES, min(MAX_COPIES, -(-2 * cache_bytes // weight_bytes)))
        self.shape, self.device, self.dtype = shape, device, dtype
        self.linears = [self._linear() for _ in range(num_copies)]
        self._norm = Norm(torch.ones(shape.k, device=device, dtype=dtype), EPS)  # its weight is part of the product's

    def _linear(self) -> Linear:
        n, k = self.shape.n, self.shape.k
        weight = torch.randn(n, k, device=self.device, dtype=self.dtype) * k**-0.5
        if not self.shape.fp8:
            return Linear(weight)
        codes, scales = quantised(weight)
        return Linear(codes, scales=scales)

    def rows(self, num_rows: int) -> tuple[Tensor, Tensor]:
        """x [num_rows, k] and what it is added to [num_rows, num_columns]."""
        x, residual = (
            torch.randn(num_rows, width, device=self.device, dtype=self.dtype)
            for width in (self.shape.k, self.shape.num_columns)
        )
        return x, residual

    def expected(self, x: Tensor, residual: Tensor) -> Tensor:
        """The product with the first weights, in float64."""
        weight, wide = self.linears[0].weight_in(torch.float64).double(), x.double()
        if self.shape.op == "linear_add":
            return residual.double() + F.linear(wide, weight)
        product = F.linear(wide * inverse_rms(wide), weight)
        if self.shape.op == "norm_linear":
            return product
        gate, up = product.chunk(2, dim=-1)
        return F.silu(gate) * up

    def run(self, ops: TritonLayerOps, x: Tensor, residual: Tensor, copy: int = 0) -> tuple[Tensor, bool]:
        """The op of the shape, and whether its rows have yet to be scaled; a sum is written over `residual`."""
        linear = self.linears[copy]
        if self.shape.op == "linear_add":
            return ops.linear_add(x, linear, residual, 1.0, in_place=True), False
        if self.shape.op == "norm_linear":
            return ops.norm_linear(x, self._norm, linear, defers=True)
        return ops.norm_swiglu(x, self._norm, linear), False


def inverse_rms(x: Tensor) -> Tensor:
    """[rows, k] -> [rows, 1], in the precision of x."""
    return torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + EPS)


def make_ops(config: Config, device: torch.device) -> TritonLayerOps:
    """All products with that config."""
    return TritonLayerOps(device, lambda shape, num_rows: config)


def relative_error(inputs: Inputs, ops: TritonLayerOps, x: Tensor, residual: Tensor, expected: Tensor) -> float:
    """Of a result; infinite where it does not repeat. `residual` stays as it is."""
    first, is_unscaled = inputs.run(ops, x, residual.clone())
    for _ in range(NUM_REPEATS):
        if not torch.equal(inputs.run(ops, x, residual.clone())[0], first):
            return float("inf")
    found = first.double() * inverse_rms(x.double()) if is_unscaled else first.double()
    return float((found - expected).norm() / expected.norm())


class GraphTimer:
    """Times calls inside CUDA graphs, which share their memory."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        # A pool lives as long as one of its graphs.
        self._keeper = self._captured(lambda: torch.zeros(1, device=device))

    def _captured(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """Unlike torch.cuda.graph it collects no garbage, which would take longer than all the rest."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool)
            try:
                work()
            finally:
                graph.capture_end()
        return graph

    def microseconds(self, call: Callable[[int], object], num_calls: int, num_replays: tuple[int, ...]) -> float:
        """Of one call: the least over rounds of so many replays. `call` gets the numbers 0 to num_calls - 1."""

        def work() -> None:
            for number in range(num_calls):
                call(number)

        with torch.cuda.stream(self._stream):
            call(0)  # what a library allocates for a stream must not come from the graphs' memory
        graph = self._captured(work)
        with torch.cuda.stream(self._stream):
            graph.replay()
            rounds = []
            for count in num_replays:
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                for _ in range(count):
                    graph.replay()
                end.record()
                end.synchronize()
                rounds.append(1e3 * start.elapsed_time(end) / (count * num_calls))
        return min(rounds)
