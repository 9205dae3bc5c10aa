"""Voices of a model that is not there: their latents are noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from voxcpm_core.checkpoint.tiny import tiny_config
from voxcpm_core.config.model import ModelConfig
from voxcpm_core.voices import Voice, VoiceStore

MODEL = ModelConfig.from_json(tiny_config("2"))


def latents(seed: int, num_patches: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((num_patches * MODEL.patch_size, MODEL.feat_dim), dtype=np.float32)


def voice(name: str, seed: int = 0, kind: str = "both") -> Voice:
    prompt = latents(seed) if kind != "reference" else None
    reference = latents(seed + 1000, 3) if kind != "prompt" else None
    return Voice.make(name, MODEL, prompt, "so it begins" if prompt is not None else "", reference)


def open_store(folder: Path, max_voices: int = 100, max_mib: int = 100) -> VoiceStore:
    return VoiceStore(str(folder), max_voices, max_mib)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shared" / "voices"


@pytest.fixture
def store(folder: Path) -> VoiceStore:
    return open_store(folder)
