"""LayerOps on a CUDA device. What stands beside cuBLAS's products is here, one kernel each; the rest in its modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.paged_attention import PagedAttention, PagedContext
from voxcpm_core.kernels.product_configs import Gpu, Op, ProductConfig, Shape, choose, read_table
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.triton_attention import triton_paged_attention
from voxcpm_core.kernels.triton_fp8 import has_quantised_product, product_of_quantised
from voxcpm_core.kernels.triton_guidance import guided_step
from voxcpm_core.kernels.triton_local_attention import local_attention
from voxcpm_core.kernels.triton_pdl import begin, dependent
from voxcpm_core.kernels.triton_products import new_counters, product
from voxcpm_core.kernels.triton_rope import rotate_and_store

Choice = Callable[[Shape, int], ProductConfig | None]

BLOCK = 1024  # values of a gating program


@triton.jit
def _norm(x_ptr, weight_ptr, out_ptr, hidden, eps, WIDTH: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    at = tl.arange(0, WIDTH)
    mask = at < hidden
    row = tl.program_id(0).to(tl.int64) * hidden + at
    x = tl.load(x_ptr + row, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0)
    wide = x.to(tl.float32)
    variance = tl.sum(wide * wide, axis=0) / hidden
    normed = (wide * tl.rsqrt(variance + eps)).to(x.dtype)  # rounded before the weight, as the reference does
    tl.store(out_ptr + row, normed * weight, mask=mask)


@triton.jit
def _swiglu(gate_up_ptr, out_ptr, ffn, BLOCK: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < ffn
    gate = tl.load(gate_up_ptr + row * 2 * ffn + at, mask=mask, other=0.0)
    up = tl.load(gate_up_ptr + row * 2 * ffn + ffn + at, mask=mask, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out_ptr + row * ffn + at, silu * up, mask=mask)


def _gated(gate_up: Tensor) -> Tensor:
    """silu of the first half times the second: [..., 2 * ffn] -> [..., ffn]."""
    ffn = gate_up.shape[-1] // 2
    out = gate_up.new_empty(*gate_up.shape[:-1], ffn)
    num_rows = out.numel() // ffn
    _swiglu[(num_rows, triton.cdiv(ffn, BLOCK))](
        gate_up, out, ffn, BLOCK=BLOCK, **dependent(out.device, num_rows)
    )  # fmt: skip
    return out


def gpu_of(device: torch.device) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    return Gpu(properties.name, f"{properties.major}.{properties.minor}", properties.multi_processor_count)


def _device_choice(device: torch.device) -> Choice:
    if device.type == "cuda":
        gpu = gpu_of(device)
        table, num_processors = read_table(gpu), gpu.num_processors
    else:
        table, num_processors = {}, 1  # the interpreter
    return cache(lambda shape, num_rows: choose(table, shape, num_rows, num_processors))


class TritonLayerOps:
    """One engine's; its calls, and the graphs captured of them, run one after the other on the device, but for those
    made `apart`, which run one after the other beside all others."""

    def __init__(
        self, device: torch.device, choice: Choice | None = None, attention: PagedAttention = triton_paged_attention
    ) -> None:
        """`choice`: how to run a product of so many rows; None: as the GPU's table or the rule says."""
        self._attention = attention
        self._counters, self._counters_apart = new_counters(device), new_counters(device)
        self._choice = choice or _device_choice(device)

    def _config(self, op: Op, linear: Linear, x: Tensor) -> tuple[Shape, ProductConfig | None]:
        assert linear.bias is None
        shape = Shape(op, *linear.weight.shape, str(x.dtype).removeprefix("torch."), linear.scales is not None)
        return shape, self._choice(shape, x.shape[:-1].numel())

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        hidden, out = x.shape[-1], x.new_empty(x.shape)
        num_rows, width = x.numel() // hidden, triton.next_power_of_2(hidden)
        _norm[(num_rows,)](x, weight, out, hidden, eps, WIDTH=width, **dependent(x.device, num_rows))
        return out

    def norm_linear(self, x: Tensor, norm_weight: Tensor, eps: float, linear: Linear) -> Tensor:
        shape, config = self._config("norm_linear", linear, x)
        if config is not None and config.fuses_norm(shape.op):
            y = product(shape, config, self._counters, x, linear, norm_weight, eps)
            return y if linear.lora is None else linear.lora.add(y, x, norm=Norm(norm_weight, eps))
        if config is None and has_quantised_product(x, linear):
            y = product_of_quantised(x, linear, Norm(norm_weight, eps))
            return y if linear.lora is None else linear.lora.add(y, x, norm=Norm(norm_weight, eps))
        normed = self.norm(x, norm_weight, eps)
        y = (
            F.linear(normed, linear.weight_in(x.dtype)) if config is None
            else product(shape, config, self._counters, normed, linear)
        )  # fmt: skip
        return y if linear.lora is None else linear.lora.add(y, normed)

    def norm_swiglu(self, x: Tensor, norm_weight: Tensor, eps: float, gate_up: Linear) -> Tensor:
        if gate_up.lora is not None:  # what an adapter adds comes before the gating
            return _gated(self.norm_linear(x, norm_weight, eps, gate_up))
        shape, config = self._config("norm_swiglu", gate_up, x)
        if config is not None and config.fuses_norm(shape.op):
            return product(shape, config, self._counters, x, gate_up, norm_weight, eps)
        if config is None and has_quantised_product(x, gate_up):
            return _gated(product_of_quantised(x, gate_up, Norm(norm_weight, eps)))
        normed = self.norm(x, norm_weight, eps)
        if config is None:
            return _gated(F.linear(normed, gate_up.weight_in(x.dtype)))
        return product(shape, config, self._counters, normed, gate_up)

    def linear_add(self, branch: Tensor, linear: Linear, x: Tensor, scale: float, in_place: bool) -> Tensor:
        shape, config = self._config("linear_add", linear, branch)
        if config is not None:
            y = product(shape, config, self._counters, branch, linear, residual=x, scale=scale, in_place=in_place)
        elif has_quantised_product(branch, linear):
            y = torch.add(x, product_of_quantised(branch, linear), alpha=scale, out=x if in_place else None)
        else:
            rows, total, weight = branch.flatten(0, -2), x.flatten(0, -2), linear.weight_in(x.dtype)
            if in_place:  # cuBLAS adds to what is there; elsewhere torch copies it first
                total.addmm_(rows, weight.t(), alpha=scale)
            else:
                total = torch.addmm(total, rows, weight.t(), alpha=scale)
            y = total.view(x.shape)
        return y if linear.lora is None else linear.lora.add(y, branch, scale)

    def local_attention(self, qkv: Tensor, config: TransformerConfig, rotation: Rotation | None) -> Tensor:
        return local_attention(qkv, config, rotation)

    def paged_attention(
        self, qkv: Tensor, config: TransformerConfig, rotation: Rotation | None, pages: Tensor, context: PagedContext
    ) -> Tensor:
        q = rotate_and_store(qkv, config, rotation, pages[0], pages[1], context)
        return self._attention(q, pages[0], pages[1], context).flatten(-2)

    def guided_step(self, x: Tensor, velocity: Tensor, cfg_value: Tensor, step: Tensor) -> Tensor:
        return guided_step(x, velocity, cfg_value, step)

    @contextmanager
    def apart(self) -> Iterator[None]:
        usual, self._counters = self._counters, self._counters_apart
        try:
            yield
        finally:
            self._counters = usual
