"""The encoder equals the official one; long audio goes through in chunks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from voxcpm_core.vae import VaeEncoder
from voxcpm_core.vae.chunks import CHUNK_FRAMES, at_once


def random_waveform(batch: int, samples: int) -> Tensor:
    return 0.3 * torch.randn(batch, samples, generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize("frames", [1, 9, CHUNK_FRAMES, 2 * CHUNK_FRAMES + 3])
@pytest.mark.parametrize("extra_samples", [0, 1])
def test_encode_equals_official(encoder: VaeEncoder, oracle: Any, frames: int, extra_samples: int) -> None:
    waveform = random_waveform(2, frames * encoder.config.hop_length + extra_samples)
    latents = encoder.encode(waveform)
    expected = oracle.encode(waveform, encoder.config.encoder_sample_rate)
    assert latents.shape == (2, 8, frames + extra_samples)
    assert expected.std() > 0.01
    torch.testing.assert_close(latents, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("pad", "missing_side"), [("left", (7, 0)), ("right", (0, 7))])
def test_patches_are_padded_on_the_given_side(encoder: VaeEncoder, pad: Any, missing_side: tuple[int, int]) -> None:
    samples = 3 * 4 * encoder.config.hop_length
    waveform = random_waveform(1, samples - 7)[0]
    patches = at_once(encoder.encode_patches(waveform, 4, pad))
    frames = encoder.encode(F.pad(waveform, missing_side).unsqueeze(0))[0]  # [C, 12]
    assert patches.shape == (3, 4, 8)
    assert patches.is_contiguous()
    assert torch.equal(patches.reshape(12, 8).T, frames)


def test_whole_patches_are_not_padded(encoder: VaeEncoder) -> None:
    waveform = random_waveform(1, 2 * encoder.config.hop_length)[0]
    left, right = (at_once(encoder.encode_patches(waveform, 2, pad)) for pad in ("left", "right"))
    assert torch.equal(left, right)
    assert left.shape == (1, 2, 8)


def test_it_pauses_between_chunks(encoder: VaeEncoder) -> None:
    waveform = random_waveform(1, (2 * CHUNK_FRAMES + 1) * encoder.config.hop_length)[0]
    assert len(list(encoder.encode_patches(waveform, 1, "left"))) == 2
