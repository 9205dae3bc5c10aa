"""What a pool tells of its model."""

from __future__ import annotations

from typing import TypedDict

from voxcpm_core.config.model import ModelConfig


class ModelInfo(TypedDict):
    """`sample_rate` and `output_sample_rate` are the rate of generated chunks, `encoder_sample_rate` that of prompts
    inside the model, in Hz; latents are float32 [frames, feat_dim], `patch_size` frames a patch."""

    sample_rate: int
    encoder_sample_rate: int
    output_sample_rate: int
    channels: int
    feat_dim: int
    patch_size: int
    model_path: str


def model_info(model: ModelConfig, model_path: str) -> ModelInfo:
    return ModelInfo(
        sample_rate=model.vae.sample_rate,
        encoder_sample_rate=model.vae.encoder_sample_rate,
        output_sample_rate=model.vae.sample_rate,
        channels=1,
        feat_dim=model.feat_dim,
        patch_size=model.patch_size,
        model_path=model_path,
    )
