"""The official AudioVAE modules alone, for architectures that no checkpoint at hand has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.oracle.package import official_module, quiet
from voxcpm_core.config import VaeConfig


def official_vae(config: VaeConfig, device: str = "cpu") -> Any:
    """The official module of `config`, randomly initialised; on "meta" it has shapes only."""
    name = "audio_vae" if config.even_stride_padding else "audio_vae_v2"
    module = official_module(f"voxcpm.modules.audiovae.{name}")
    settings: dict[str, Any] = {
        "encoder_dim": config.encoder_dim,
        "encoder_rates": list(config.encoder_rates),
        "latent_dim": config.latent_dim,
        "decoder_dim": config.decoder_dim,
        "decoder_rates": list(config.decoder_rates),
        "depthwise": config.depthwise,
        "sample_rate": config.encoder_sample_rate,
    }
    if not config.even_stride_padding:
        settings["out_sample_rate"] = config.sample_rate
        settings["sr_bin_boundaries"] = list(config.sample_rate_boundaries) or None
    with quiet(), torch.random.fork_rng(devices=[]), torch.device(device):
        vae = module.AudioVAE(module.AudioVAEConfig(**settings)).eval()
    return vae.requires_grad_(False)


def randomize(vae: Any, seed: int) -> dict[str, Tensor]:
    """Give every tensor a value that matters (the defaults are ones and zeros); returns the state dict."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = vae.state_dict()
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        kind = name.rsplit(".", maxsplit=1)[-1]
        noise = torch.rand(tensor.shape, generator=generator)
        if kind == "alpha":
            tensor.copy_(0.5 + noise)
        elif kind == "weight_g":
            tensor.copy_(0.6 + 0.3 * noise)
        elif kind == "bias" or "bias_embed" in name:
            tensor.copy_(0.1 * noise - 0.05)
        elif "scale_embed" in name:
            tensor.copy_(0.9 + 0.2 * noise)
        else:
            tensor.copy_(noise - 0.5)
    return tensors
