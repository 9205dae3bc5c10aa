"""The AudioVAE as training runs it: the checkpoint's tensors by their names, differentiable, whole clips at once.

Its `state_dict` is the content of `audiovae.safetensors`. The engine's own encoder and decoder, which fold the weight
norm and keep streaming state, are held equal to it by a test.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from voxcpm_core.config import VaeConfig
from voxcpm_core.config.vae import RES_UNIT_DILATIONS, RES_UNIT_KERNEL
from voxcpm_core.vae.layers import SNAKE_EPS

OUTER_KERNEL = 7
MEAN_KERNEL = 3
# Initial gains: a dozen residual units and snakes would otherwise blow the signal up.
BRANCH_GAIN, SMALL_GAIN = 0.2, 0.1
FIRST_LOG_VARIANCE = -3.0


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha, per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda and x.dtype == torch.float32:
            from demo_voice.snake_kernel import FusedSnake  # Triton comes with torch's CUDA builds

            return FusedSnake.apply(x, self.alpha)
        return x + torch.sin(self.alpha * x).square() / (self.alpha + SNAKE_EPS)


class NormedWeight(nn.Module):
    """A weight `v * g / |v|`, the norm over all dims but the first, and a bias."""

    def __init__(self, shape: tuple[int, int, int], num_bias: int, fan_in: int, gain: float = 1.0) -> None:
        super().__init__()
        direction = torch.randn(shape) * gain * fan_in**-0.5
        self.weight_v = nn.Parameter(direction)
        self.weight_g = nn.Parameter(torch.linalg.vector_norm(direction, dim=(1, 2), keepdim=True))
        self.bias = nn.Parameter(torch.zeros(num_bias))

    def weight(self) -> Tensor:
        return torch._weight_norm(self.weight_v, self.weight_g, 0)


class Conv(NormedWeight):
    """A convolution that looks back only."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int,
        *, dilation: int = 1, stride: int = 1, groups: int = 1, gain: float = 1.0,
    ) -> None:
        fan_in = in_channels // groups * kernel
        super().__init__((out_channels, in_channels // groups, kernel), out_channels, fan_in, gain)
        self.dilation, self.stride, self.groups = dilation, stride, groups
        self.left_frames = stride if stride > 1 else (kernel - 1) * dilation

    def forward(self, x: Tensor) -> Tensor:
        """[B, in, T] -> [B, out, T / stride]; T is a multiple of the stride."""
        x = F.pad(x, (self.left_frames, 0))
        return F.conv1d(x, self.weight(), self.bias, self.stride, 0, self.dilation, self.groups)


class Upsample(NormedWeight):
    """A transposed convolution of kernel 2 * stride, cut to what no later frame changes."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__((in_channels, out_channels, 2 * stride), out_channels, 2 * in_channels)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """[B, in, T] -> [B, out, T * stride]."""
        return F.conv_transpose1d(x, self.weight(), self.bias, self.stride)[..., : -self.stride]


class ResUnit(nn.Module):
    """x + pointwise(snake(dilated(snake(x))))."""

    def __init__(self, channels: int, dilation: int, depthwise: bool) -> None:
        super().__init__()
        groups = channels if depthwise else 1
        dilated = Conv(channels, channels, RES_UNIT_KERNEL, dilation=dilation, groups=groups)
        pointwise = Conv(channels, channels, 1, gain=BRANCH_GAIN)
        self.block = nn.Sequential(Snake(channels), dilated, Snake(channels), pointwise)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)


def _res_units(channels: int, depthwise: bool) -> list[nn.Module]:
    return [ResUnit(channels, dilation, depthwise) for dilation in RES_UNIT_DILATIONS]


class Block(nn.Module):
    """A sequence of layers under the name `block`, as the checkpoint nests them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.block = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


class Encoder(Block):
    """Waveform to the mean and log variance of the latents."""

    def __init__(self, config: VaeConfig) -> None:
        width = config.encoder_dim
        layers: list[nn.Module] = [Conv(1, width, OUTER_KERNEL)]
        for rate in config.encoder_rates:
            downsample = Conv(width, 2 * width, 2 * rate, stride=rate)
            layers.append(Block(*_res_units(width, config.depthwise), Snake(width), downsample))
            width *= 2
        super().__init__(*layers)
        self.fc_mu = Conv(width, config.latent_dim, MEAN_KERNEL)
        self.fc_logvar = Conv(width, config.latent_dim, MEAN_KERNEL, gain=SMALL_GAIN)
        nn.init.constant_(self.fc_logvar.bias, FIRST_LOG_VARIANCE)


class Decoder(nn.Module):
    """Latents to waveform, of a depthwise VAE without sample-rate conditioning."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        latent, width = config.latent_dim, config.decoder_dim
        layers: list[nn.Module] = [Conv(latent, latent, OUTER_KERNEL, groups=latent), Conv(latent, width, 1)]
        for rate in config.decoder_rates:
            upsample = Upsample(width, width // 2, rate)
            layers.append(Block(Snake(width), upsample, *_res_units(width // 2, config.depthwise)))
            width //= 2
        self.model = nn.Sequential(*layers, Snake(width), Conv(width, 1, OUTER_KERNEL, gain=SMALL_GAIN))

    def forward(self, latents: Tensor) -> Tensor:
        return torch.tanh(self.model(latents)).squeeze(1)


class AudioVae(nn.Module):
    """Encoder and decoder of a VoxCPM2 AudioVAE."""

    def __init__(self, config: VaeConfig) -> None:
        """Random weights from torch's generator."""
        super().__init__()
        assert config.depthwise
        assert not config.sample_rate_boundaries
        assert not config.even_stride_padding
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    def encode(self, waveform: Tensor) -> tuple[Tensor, Tensor]:
        """[B, T * hop] in [-1, 1] -> mean and log variance, each [B, latent_dim, T]."""
        hidden = self.encoder(waveform.unsqueeze(1))
        return self.encoder.fc_mu(hidden), self.encoder.fc_logvar(hidden)

    def decode(self, latents: Tensor) -> Tensor:
        """[B, latent_dim, T] -> [B, T * hop] in [-1, 1]."""
        return self.decoder(latents)

    @torch.no_grad()
    def standardize(self, mean: Tensor, deviation: Tensor) -> None:
        """Fold channel statistics [latent_dim] into the weights: the latents get mean 0 and variance 1.

        The decoder's first layer is depthwise, so it undoes the scale by its gain; the mean, which its zero padding
        does not see, becomes a bias. Only the first frames of a clip come out differently, as if constant latents and
        not zeros preceded them.
        """
        head, first = self.encoder.fc_mu, self.decoder.model[0]
        assert isinstance(first, Conv)
        first.bias += first.weight().sum(dim=(1, 2)) * mean
        first.weight_g *= deviation.view(-1, 1, 1)
        head.bias.copy_((head.bias - mean) / deviation)
        head.weight_g /= deviation.view(-1, 1, 1)
        spread = self.encoder.fc_logvar
        spread.bias -= 2 * deviation.log()
