"""Attention over the paged KV cache by FlashAttention 2, the package flash-attn, where it is asked for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from voxcpm_core.errors import ConfigError
from voxcpm_core.kernels.paged_attention import PagedAttention, PagedContext

MIN_CAPABILITY = (8, 0)
MAX_HEAD_DIM, HEAD_DIM_MULTIPLE = 256, 8


def flash_paged_attention(device: torch.device, dtype: torch.dtype, head_dim: int) -> PagedAttention:
    """`paged_attention` for pages of a multiple of 256 positions, where each row's positions follow each other.

    Safe in a CUDA graph. Raises ConfigError naming what is missing for caches of that kind on that device.
    """
    require_support(device, dtype, head_dim)
    function = _imported()

    def attend(q: Tensor, k_pages: Tensor, v_pages: Tensor, context: PagedContext) -> Tensor:
        table, num_keys = context.int32_keys
        return function(q, k_pages, v_pages, cache_seqlens=num_keys, block_table=table, causal=True)

    return attend


def require_support(device: torch.device, dtype: torch.dtype, head_dim: int) -> None:
    """Raise ConfigError where FlashAttention 2 cannot run, wherever it is installed."""
    if device.type != "cuda":
        raise _missing(f"a CUDA device, and the engine is on {device.type}")
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        raise _missing(f"a GPU of compute capability 8.0 or more, and this one has {capability[0]}.{capability[1]}")
    if dtype not in (torch.bfloat16, torch.float16):
        raise _missing(f"dtype bfloat16, and this engine's is {str(dtype).removeprefix('torch.')}")
    if head_dim > MAX_HEAD_DIM or head_dim % HEAD_DIM_MULTIPLE:
        wanted = f"heads of a multiple of {HEAD_DIM_MULTIPLE} values, at most {MAX_HEAD_DIM}"
        raise _missing(f"{wanted}, and this model's have {head_dim}")


def _imported() -> Callable[..., Tensor]:
    try:
        from flash_attn import flash_attn_with_kvcache
    except (ImportError, OSError) as error:  # also one that was built for another torch
        raise _missing(f"the package flash-attn, version 2, which cannot be imported: {error}") from None
    function: Callable[..., Tensor] = flash_attn_with_kvcache
    return function


def _missing(what: str) -> ConfigError:
    return ConfigError(f"attention: 'flash' needs {what}")
