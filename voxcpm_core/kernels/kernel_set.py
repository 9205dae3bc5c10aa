"""Which implementation of each kernel an engine uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from voxcpm_core.kernels.layer_ops import LayerOps, TorchLayerOps
from voxcpm_core.kernels.lora import LoraKernel, torch_lora
from voxcpm_core.kernels.noise import philox_normal
from voxcpm_core.kernels.paged_attention import PagedAttention, paged_attention
from voxcpm_core.vae import ChunkedEncoder, StreamDecoder, VaeDecoder, VaeEncoder


@dataclass(frozen=True)
class KernelSet:
    """All of them give the same but for the order of sums."""

    layer_ops: LayerOps
    normal: Callable[[Tensor, Tensor, int], Tensor]  # as `philox_normal`
    vae_encoder: Callable[[VaeEncoder], ChunkedEncoder]  # takes over the weights
    vae_decoder: Callable[[VaeDecoder], StreamDecoder]  # likewise
    lora: LoraKernel


def torch_kernels(attention: PagedAttention | None = None) -> KernelSet:
    """`attention`: None for torch's own."""
    return KernelSet(
        TorchLayerOps(attention or paged_attention), philox_normal, lambda encoder: encoder, lambda decoder: decoder,
        torch_lora,
    )  # fmt: skip


TORCH_KERNELS = torch_kernels()


def triton_kernels(device: torch.device, attention: PagedAttention | None = None) -> KernelSet:
    """Those for one engine on a CUDA device; torch builds for such bring Triton along. `attention`: None for Triton's.
    """
    from voxcpm_core.kernels.triton_attention import triton_paged_attention
    from voxcpm_core.kernels.triton_layer_ops import TritonLayerOps
    from voxcpm_core.kernels.triton_lora import triton_lora
    from voxcpm_core.kernels.triton_noise import triton_philox_normal
    from voxcpm_core.vae.triton_decoder import TritonVaeDecoder
    from voxcpm_core.vae.triton_encoder import TritonVaeEncoder

    def vae_encoder(encoder: VaeEncoder) -> ChunkedEncoder:
        return TritonVaeEncoder(encoder) if encoder.config.depthwise else encoder

    def vae_decoder(decoder: VaeDecoder) -> StreamDecoder:
        # No release has dense residual units.
        return TritonVaeDecoder(decoder) if decoder.config.depthwise else decoder

    layer_ops = TritonLayerOps(device, attention=attention or triton_paged_attention)
    return KernelSet(layer_ops, triton_philox_normal, vae_encoder, vae_decoder, triton_lora)
