"""The AudioVAE's weights as its Triton kernels read them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from voxcpm_core.kernels.triton_vae_conv import DepthwiseConv
from voxcpm_core.kernels.triton_vae_product import Product
from voxcpm_core.vae.decoder import RateCondition
from voxcpm_core.vae.layers import CausalConv, CausalUpsample, PointwiseConv, Snake


class Following(NamedTuple):
    """What is done to the result of a product."""

    snake: Snake | None  # None: nothing
    condition: nn.Module | None = None


def packed_depthwise(conv: CausalConv, snake: Snake | None) -> DepthwiseConv:
    taps = conv.weight[:, 0].t()  # [TAPS, C]
    rows = torch.cat((taps, conv.bias[None], _snake_rows(snake, conv.bias)))
    return DepthwiseConv(rows.contiguous(), conv.dilation, conv.past.offset)


def packed_pointwise(conv: PointwiseConv, following: Following) -> Product:
    return Product(_halves(conv.weight[:, :, 0].t()), _params(conv.bias, following))


def packed_windows(conv: CausalConv, following: Following) -> Product:
    """Rows: the channels of a window's first frame, then those of the next."""
    return Product(_halves(conv.weight.permute(2, 1, 0).flatten(0, 1)), _params(conv.bias, following))


def packed_upsample(conv: CausalUpsample, following: Following) -> Product:
    """Rows: the channels of the frame before, then those of the frame; columns: the output frames, channels inside."""
    now, before = conv.weight.transpose(1, 2).split(conv.stride, dim=1)  # [in, stride, out] each
    weight = torch.cat((before, now)).flatten(1)  # [2 in, stride * out]
    return Product(_halves(weight), _params(conv.bias, following).repeat(1, conv.stride))


def _halves(weight: Tensor) -> Tensor:
    """fp16 values that sum up to `weight` [K, N]. # [2, K, N]"""
    high = weight.half()
    return torch.stack((high, (weight - high.float()).half())).contiguous()


def _params(bias: Tensor, following: Following) -> Tensor:
    """# [5, C]"""
    condition = following.condition
    if isinstance(condition, RateCondition):
        scale, shift = condition.scale.flatten(), condition.bias.flatten()
    else:
        scale, shift = torch.ones_like(bias), torch.zeros_like(bias)
    return torch.cat((torch.stack((bias, scale, shift)), _snake_rows(following.snake, bias)))


def _snake_rows(snake: Snake | None, bias: Tensor) -> Tensor:
    """alpha in half turns, and 1 / alpha; zeros, for as many channels as `bias` has, change nothing. # [2, C]"""
    if snake is None:
        return bias.new_zeros(2, bias.numel())
    half_turns = (snake.alpha.double() / math.pi).float()
    return torch.stack((half_turns.flatten(), snake.inverse.flatten()))
