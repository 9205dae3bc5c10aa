"""The trainable AudioVAE equals the engine's and the official one, and learns."""

from __future__ import annotations

import math

import pytest
import torch

from demo_voice.model_sizes import voice_config
from demo_voice.schedule import Clock
from demo_voice.vae import AudioVae
from demo_voice.vae_losses import ReconstructionLoss, mel_filters
from demo_voice.vae_training import VaeSettings, VaeTrainer
from tests.oracle.vae import official_vae
from voxcpm_core.checkpoint.shapes import vae_shapes
from voxcpm_core.config import ModelConfig
from voxcpm_core.vae import VaeDecoder, VaeEncoder

SIZES = ("tiny", "demo")
SETTINGS = VaeSettings(batch_size=4, clip_frames=6, learning_rate=2e-3)


def make_vae(size: str) -> AudioVae:
    torch.manual_seed(3)
    vae = AudioVae(ModelConfig.from_json(voice_config(size, 512)).vae)
    with torch.no_grad():
        for name, parameter in vae.named_parameters():
            if name.endswith(("bias", "alpha")):
                parameter += 0.1 * torch.randn_like(parameter)
    return vae


def voices(batch_size: int, num_samples: int, min_gain: float = 1.0) -> torch.Tensor:
    """Buzzing tones of different pitches and phases."""
    t = torch.arange(num_samples) / 16000
    pitch = 100 + 100 * torch.rand(batch_size, 1)
    phase = torch.rand(batch_size, 1)
    return 0.4 * torch.sin(2 * math.pi * (pitch * t + phase)) + 0.2 * torch.sin(2 * math.pi * 4 * pitch * t)


@pytest.mark.parametrize("size", SIZES)
def test_tensors_are_those_of_the_checkpoint(size):
    vae = make_vae(size)
    assert {name: tuple(tensor.shape) for name, tensor in vae.state_dict().items()} == vae_shapes(vae.config)


@pytest.mark.parametrize("size", SIZES)
def test_encode_and_decode_equal_the_engines_and_the_official_ones(size):
    vae = make_vae(size)
    waveform = voices(2, 6 * vae.config.hop_length)
    official = official_vae(vae.config)
    official.load_state_dict(vae.state_dict())
    with torch.no_grad():
        mean, _ = vae.encode(waveform)
        decoded = vae.decode(mean)
        tensors = vae.state_dict()
        ours = VaeEncoder.from_tensors(vae.config, tensors).encode(waveform)
        torch.testing.assert_close(ours, mean, atol=1e-5, rtol=0)
        ours = VaeDecoder.from_tensors(vae.config, tensors).decode_offline(mean)
        torch.testing.assert_close(ours, decoded, atol=1e-5, rtol=0)
        torch.testing.assert_close(official.encode(waveform.unsqueeze(1), 16000), mean, atol=1e-5, rtol=0)
        torch.testing.assert_close(official.decode(mean).squeeze(1), decoded, atol=1e-5, rtol=0)


@torch.no_grad()
def test_standardizing_scales_the_latents_and_keeps_the_audio():
    vae = make_vae("tiny")
    waveform = voices(8, 40 * vae.config.hop_length)
    mean, log_variance = vae.encode(waveform)
    before = vae.decode(mean)
    vae.standardize(mean.mean(dim=(0, 2)), mean.std(dim=(0, 2)))
    scaled, scaled_log_variance = vae.encode(waveform)
    torch.testing.assert_close(scaled.mean(dim=(0, 2)), torch.zeros(8), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled.std(dim=(0, 2)), torch.ones(8), atol=1e-4, rtol=0)
    ratio = torch.exp(0.5 * (scaled_log_variance - log_variance))
    torch.testing.assert_close(ratio.mean(dim=(0, 2)) * mean.std(dim=(0, 2)), torch.ones(8), atol=1e-3, rtol=0)
    settled = 30 * vae.config.hop_length  # what precedes a clip is constant now, and was zero
    torch.testing.assert_close(vae.decode(scaled)[:, settled:], before[:, settled:], atol=1e-4, rtol=0)


def test_mel_bands_cover_every_frequency():
    filters = mel_filters(16000, 1024, 40)
    assert filters.shape == (40, 513)
    covered = filters.sum(dim=0)[10:-10]
    assert covered.min() > 0
    assert filters.argmax(dim=1).diff().min() > 0


def test_the_loss_is_zero_for_equal_clips_alone():
    clips = voices(2, 4096)
    loss = ReconstructionLoss(16000, torch.device("cpu"))
    assert loss(clips, clips) < 1e-6
    assert loss(0.9 * clips, clips) > 0.05


def test_training_lowers_the_loss():
    vae = make_vae("tiny")
    trainer = VaeTrainer(vae, SETTINGS, voices)
    first = trainer.step(trainer.crops())
    saved = []
    last = trainer.run(Clock(minutes=1.0), lambda: saved.append(vae.state_dict()), max_steps=16)
    assert len(saved) == 1
    assert last["reconstruction"] < 0.8 * first["reconstruction"].item()


def test_refining_changes_the_decoder_alone():
    vae = make_vae("tiny")
    before = {name: value.clone() for name, value in vae.state_dict().items()}
    losses = VaeTrainer(vae, SETTINGS, voices, refines=True).run(Clock(minutes=1.0), lambda: None, max_steps=3)
    assert 0 < losses["critic"] < 4
    for name, value in vae.state_dict().items():
        assert torch.isfinite(value).all()
        assert torch.equal(value, before[name]) == name.startswith("encoder."), name
