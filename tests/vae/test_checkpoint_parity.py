"""Whole checkpoints: our encoder and decoder against the official package, conditions included."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.oracle.fixtures import GENERATIONS
from tests.oracle.model import OfficialModel
from voxcpm_core.config import ModelConfig
from voxcpm_core.vae import VaeDecoder, VaeEncoder
from voxcpm_core.vae.chunks import at_once


@pytest.fixture(params=GENERATIONS)
def generation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def official(generation: str, official_models: dict[str, OfficialModel]) -> OfficialModel:
    return official_models[generation]


@pytest.fixture
def config(generation: str, tiny_checkpoints: dict[str, Path]) -> ModelConfig:
    return ModelConfig.from_json(json.loads((tiny_checkpoints[generation] / "config.json").read_text()))


def test_decode_equals_official(official: OfficialModel, config: ModelConfig) -> None:
    decoder = VaeDecoder.from_tensors(config.vae, official.model.audio_vae.state_dict())
    latents = torch.randn(2, config.feat_dim, 6 * config.patch_size, generator=torch.Generator().manual_seed(7))
    audio = decoder.decode_offline(latents)
    assert audio.shape == (2, 6 * config.samples_per_patch)
    torch.testing.assert_close(audio, official.vae_decode(latents), atol=1e-5, rtol=0)


def test_conditions_equal_official(official: OfficialModel, config: ModelConfig) -> None:
    encoder = VaeEncoder.from_tensors(config.vae, official.model.audio_vae.state_dict())
    samples = 5 * config.encoder_samples_per_patch + 7
    waveform = (0.2 * np.random.default_rng(8).standard_normal(samples)).astype(np.float32)
    prompt = at_once(encoder.encode_patches(torch.from_numpy(waveform), config.patch_size, "left"))
    assert prompt.shape == (6, config.patch_size, config.feat_dim)
    torch.testing.assert_close(prompt, official.prompt_latents(waveform), atol=1e-5, rtol=0)
    if config.supports_reference:
        reference = at_once(encoder.encode_patches(torch.from_numpy(waveform), config.patch_size, "right"))
        torch.testing.assert_close(reference, official.reference_latents(waveform), atol=1e-5, rtol=0)
        assert not torch.allclose(reference, prompt, atol=1e-3)
