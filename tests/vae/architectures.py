"""Small AudioVAE architectures that cover what differs between generations, and the released ones."""

from __future__ import annotations

from dataclasses import replace

from voxcpm_core.config import VaeConfig

V1 = VaeConfig(
    encoder_dim=4,
    encoder_rates=(2, 5),
    latent_dim=8,
    decoder_dim=32,
    decoder_rates=(5, 2),
    depthwise=True,
    encoder_sample_rate=16000,
    sample_rate=16000,
    sample_rate_boundaries=(),
    even_stride_padding=True,
)
V1_ODD = replace(V1, encoder_rates=(2, 3, 7), decoder_rates=(7, 3, 2), encoder_sample_rate=44100, sample_rate=44100)
V2 = replace(
    V1,
    decoder_rates=(5, 3, 2),
    sample_rate=48000,
    sample_rate_boundaries=(20000, 30000, 40000),
    even_stride_padding=False,
)
SMALL = {
    "v1": V1,
    "v1_odd_rates": V1_ODD,
    "v1_dense": replace(V1, depthwise=False),
    "v2": V2,
    "v2_low_rate_bucket": replace(V2, sample_rate=24000),
    "v2_unconditioned": replace(V2, sample_rate_boundaries=()),
}

RELEASED = {
    "0.5": replace(V1, encoder_dim=128, encoder_rates=(2, 5, 8, 8), latent_dim=64, decoder_dim=1536,
                   decoder_rates=(8, 8, 5, 2)),
    "1.5": replace(V1_ODD, encoder_dim=64, encoder_rates=(2, 3, 6, 7, 7), latent_dim=64, decoder_dim=2048,
                   decoder_rates=(7, 7, 6, 3, 2)),
    "2": replace(V2, encoder_dim=128, encoder_rates=(2, 5, 8, 8), latent_dim=64, decoder_dim=2048,
                 decoder_rates=(8, 6, 5, 2, 2, 2)),
}  # fmt: skip
