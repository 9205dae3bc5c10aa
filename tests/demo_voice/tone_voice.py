"""Utterances of tones, and checkpoints of the tiny size, for the tests of training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from demo_voice.export import write_config, write_main, write_vae
from demo_voice.model_sizes import voice_config
from demo_voice.model_weights import initial_tensors
from demo_voice.phones import PHONE_FRAME_SAMPLES
from demo_voice.vae import AudioVae
from voxcpm_core.checkpoint.tiny_tokenizer import write_tokenizer
from voxcpm_core.config import ModelConfig

VOCAB_SIZE = 512
PATCH_SAMPLES = 2560


@dataclass(frozen=True)
class Tone:
    """An utterance as the corpus has them."""

    text: str
    speaker: str
    style: str
    tempo: float
    pcm: np.ndarray  # int16 [num_samples]
    phones: np.ndarray  # uint8 [num_samples / 320]


def tone(text: str, speaker: str, pitch_hz: float, num_patches: int, style: str = "", tempo: float = 1.0) -> Tone:
    """A vibrating tone that fills all but the end of its last patch."""
    t = np.arange(num_patches * PATCH_SAMPLES) / 16000
    wave = 0.5 * np.sin(2 * math.pi * pitch_hz * t) * (1 + 0.5 * np.sin(2 * math.pi * 3 * t))
    wave[-PATCH_SAMPLES // 3 :] = 0
    phones = np.arange(len(wave) // PHONE_FRAME_SAMPLES) % 8 // 4 + 1
    return Tone(text, speaker, style, tempo, (20000 * wave).astype(np.int16), phones.astype(np.uint8))


def tiny_checkpoint(folder: Path, seed: int = 0) -> ModelConfig:
    """Write an untrained voice of the tiny size; everything that could vanish has a random value."""
    config = write_config(folder, voice_config("tiny", VOCAB_SIZE))
    write_tokenizer(folder, VOCAB_SIZE)
    generator = torch.Generator().manual_seed(seed)
    tensors = initial_tensors(config, generator)
    for name, tensor in tensors.items():
        if name.endswith(("bias", "norm.weight")):
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
    write_main(folder, config, tensors)
    torch.manual_seed(seed)
    write_vae(folder, config, AudioVae(config.vae).state_dict())
    return config
