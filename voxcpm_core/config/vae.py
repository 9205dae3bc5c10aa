"""The AudioVAE's architecture, from `audio_vae_config` of config.json."""

from __future__ import annotations

import math
from dataclasses import dataclass

from voxcpm_core.config.fields import Fields
from voxcpm_core.errors import ConfigError

RES_UNIT_DILATIONS = (1, 3, 9)
RES_UNIT_KERNEL = 7


@dataclass(frozen=True)
class VaeConfig:
    """AudioVAE V1 or V2: a causal convolutional encoder and decoder around 25 Hz latents."""

    encoder_dim: int
    encoder_rates: tuple[int, ...]
    latent_dim: int
    decoder_dim: int
    decoder_rates: tuple[int, ...]
    depthwise: bool
    encoder_sample_rate: int
    sample_rate: int  # of the decoder's output
    sample_rate_boundaries: tuple[int, ...]  # Hz; empty: no sample-rate conditioning
    even_stride_padding: bool  # V1 pads a strided convolution by 2 * ceil(stride / 2), V2 by the stride

    @property
    def hop_length(self) -> int:
        """Encoder samples per latent frame."""
        return math.prod(self.encoder_rates)

    @property
    def upsampling(self) -> int:
        """Output samples per latent frame."""
        return math.prod(self.decoder_rates)

    @property
    def sample_rate_bucket(self) -> int:
        """Index of the output rate's conditioning row: the boundaries strictly below the rate."""
        return sum(boundary < self.sample_rate for boundary in self.sample_rate_boundaries)

    @classmethod
    def from_json(cls, fields: Fields, v2: bool) -> VaeConfig:
        """Absent keys take the defaults of the official classes; `v2` chooses which of the two."""
        rate = fields.integer("sample_rate", default=16000)
        conditioned = v2 and not fields.is_null("sr_bin_boundaries")
        if conditioned and fields.string("cond_type", default="scale_bias") != "scale_bias":
            raise ConfigError("audio_vae_config.cond_type: only 'scale_bias' is supported")
        if conditioned and fields.boolean("cond_out_layer", default=False):
            raise ConfigError("audio_vae_config.cond_out_layer: only false is supported")
        if fields.boolean("use_noise_block", default=False):
            raise ConfigError("audio_vae_config.use_noise_block: only false is supported; no release uses it")
        return cls(
            encoder_dim=fields.integer("encoder_dim", default=128),
            encoder_rates=fields.integers("encoder_rates", default=(2, 5, 8, 8)),
            latent_dim=fields.integer("latent_dim", default=64),
            decoder_dim=fields.integer("decoder_dim", default=2048 if v2 else 1536),
            decoder_rates=fields.integers("decoder_rates", default=(8, 6, 5, 2, 2, 2) if v2 else (8, 8, 5, 2)),
            depthwise=fields.boolean("depthwise", default=True),
            encoder_sample_rate=rate,
            sample_rate=fields.integer("out_sample_rate", default=48000) if v2 else rate,
            sample_rate_boundaries=(
                fields.integers("sr_bin_boundaries", default=(20000, 30000, 40000)) if conditioned else ()
            ),
            even_stride_padding=not v2,
        )
