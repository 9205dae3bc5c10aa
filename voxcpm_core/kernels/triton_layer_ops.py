"""LayerOps on a CUDA device: which kernels compute each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from voxcpm_core.config import TransformerConfig
from voxcpm_core.kernels import cublaslt
from voxcpm_core.kernels.linear import Linear
from voxcpm_core.kernels.lora import Norm
from voxcpm_core.kernels.paged_attention import PagedAttention, PagedContext
from voxcpm_core.kernels.product_configs import Config, Gpu, Op, ProductConfig, Shape, choose, read_table
from voxcpm_core.kernels.rope import Rotation
from voxcpm_core.kernels.triton_attention import num_processors, triton_paged_attention
from voxcpm_core.kernels.triton_decode_attention import decode_attention
from voxcpm_core.kernels.triton_dit_tokens import dit_tokens
from voxcpm_core.kernels.triton_fp8 import has_quantised_product, product_of_quantised
from voxcpm_core.kernels.triton_gating import swiglu
from voxcpm_core.kernels.triton_guidance import guided_step
from voxcpm_core.kernels.triton_local_attention import local_attention
from voxcpm_core.kernels.triton_norm import rms_norm
from voxcpm_core.kernels.triton_products import new_counters, product
from voxcpm_core.kernels.triton_rope import rotate_and_store

Choice = Callable[[Shape, int], Config]


def gpu_of(device: torch.device) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    return Gpu(properties.name, f"{properties.major}.{properties.minor}", properties.multi_processor_count)


def _device_choice(device: torch.device) -> Choice:
    table = read_table(gpu_of(device)) if device.type == "cuda" else {}
    return cache(lambda shape, num_rows: choose(table, shape, num_rows, num_processors(device)))


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
        self._num_processors = num_processors(device)

    def _config(self, op: Op, linear: Linear, x: Tensor) -> tuple[Shape, Config]:
        assert linear.bias is None
        shape = Shape(op, *linear.weight.shape, str(x.dtype).removeprefix("torch."), linear.scales is not None)
        return shape, self._choice(shape, x.shape[:-1].numel())

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return rms_norm(x, weight, eps)

    def folded(self, weight: Tensor, norm_weight: Tensor) -> Tensor:
        return (weight.float() * norm_weight.float()).to(weight.dtype)

    def norm_linear(self, x: Tensor, norm: Norm, linear: Linear, defers: bool) -> tuple[Tensor, bool]:
        """The product with the RMS norm of x: [..., hidden] -> [..., out]; linear: its weight is `folded`.

        Also whether its rows have yet to be scaled by the inverse RMS of x, as may be if `defers`.
        """
        y, is_unscaled = self._norm_product(x, norm, linear, defers)
        if linear.lora is not None:
            y = linear.lora.add(y, x, eps=None if is_unscaled else norm.eps)
        return y, is_unscaled

    def _norm_product(self, x: Tensor, norm: Norm, linear: Linear, defers: bool) -> tuple[Tensor, bool]:
        """`norm_linear` without adapters."""
        shape, config = self._config("norm_linear", linear, x)
        if isinstance(config, ProductConfig):
            defers = config.norm_way(shape.op, defers) == "none"
            return product(shape, config, self._counters, x, linear, None if defers else norm.eps), defers
        if has_quantised_product(x, linear):
            return product_of_quantised(x, linear, norm.eps), False
        rows = x if defers else rms_norm(x, None, norm.eps)
        return cublaslt.linear(rows, linear.weight_in(x.dtype), config), defers

    def norm_swiglu(self, x: Tensor, norm: Norm, gate_up: Linear) -> Tensor:
        if gate_up.adapters is not None:  # what an adapter adds comes before the gating
            y, _ = self._norm_product(x, norm, gate_up, defers=False)
            return gate_up.adapters.add_gated(y, x, norm.eps)
        shape, config = self._config("norm_swiglu", gate_up, x)
        if isinstance(config, ProductConfig):
            return product(shape, config, self._counters, x, gate_up, norm.eps)
        if has_quantised_product(x, gate_up):
            return swiglu(product_of_quantised(x, gate_up, norm.eps))
        return swiglu(cublaslt.linear(x, gate_up.weight_in(x.dtype), config), x, norm.eps)

    def linear_add(self, branch: Tensor, linear: Linear, x: Tensor, scale: float, in_place: bool) -> Tensor:
        assert x.is_contiguous() or not in_place
        shape, config = self._config("linear_add", linear, branch)
        if isinstance(config, ProductConfig):
            y = product(shape, config, self._counters, branch, linear, residual=x, scale=scale, in_place=in_place)
        elif has_quantised_product(branch, linear):
            y = torch.add(x, product_of_quantised(branch, linear), alpha=scale, out=x if in_place else None)
        else:
            y = x if in_place else x.clone()  # cuBLAS adds to what is there
            weight = linear.weight_in(x.dtype)
            cublaslt.add_product(y.flatten(0, -2), branch.flatten(0, -2), weight, scale, config)
        return y if linear.lora is None else linear.lora.add(y, branch, scale)

    def local_attention(
        self, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig, rotation: Rotation | None, kept: slice
    ) -> tuple[Tensor, Tensor]:
        y, is_unscaled = self.norm_linear(x, norm, qkv, defers=True)
        return local_attention(y, config, rotation, x, norm.eps if is_unscaled else None, kept)

    def paged_attention(
        self, x: Tensor, norm: Norm, qkv: Linear, config: TransformerConfig, rotation: Rotation | None, pages: Tensor,
        context: PagedContext,
    ) -> Tensor:
        decodes = x.shape[1] == 1 and self._attention is triton_paged_attention
        y, is_unscaled = self.norm_linear(x, norm, qkv, defers=decodes)
        if decodes:
            return decode_attention(
                y, x if is_unscaled else None, norm.eps, config, rotation, pages, context, self._counters,
                self._num_processors,
            )
        q = rotate_and_store(y, config, rotation, pages[0], pages[1], context)
        return self._attention(q, pages[0], pages[1], context).flatten(-2)

    def dit_tokens(
        self, x: Tensor, in_proj: Linear, mu: Tensor, mu_tokens: int, time_token: Tensor, cond: Tensor
    ) -> Tensor:
        return dit_tokens(x, in_proj, mu, mu_tokens, time_token, cond)

    def guided_step(
        self, x: Tensor, hidden: Tensor, norm: Norm, out_proj: Linear, cfg_value: Tensor, step: Tensor
    ) -> Tensor:
        return guided_step(x, hidden, norm.eps, out_proj, cfg_value, step)

    @contextmanager
    def apart(self) -> Iterator[None]:
        usual, self._counters = self._counters, self._counters_apart
        try:
            yield
        finally:
            self._counters = usual
