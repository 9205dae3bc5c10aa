"""The decoder equals the official one, in one piece."""

from __future__ import annotations

from typing import Any

import torch

from voxcpm_core.vae import VaeDecoder


def test_offline_decode_equals_official(decoder: VaeDecoder, oracle: Any) -> None:
    latents = torch.randn(3, 8, 21, generator=torch.Generator().manual_seed(2))
    audio = decoder.decode_offline(latents)
    expected = oracle.decode(latents).squeeze(1)
    assert audio.shape == (3, 21 * decoder.config.upsampling)
    assert expected.std() > 0.01  # the random network says something
    torch.testing.assert_close(audio, expected, atol=1e-5, rtol=0)


def test_weights_are_constants(decoder: VaeDecoder) -> None:
    assert not list(decoder.parameters())
    assert decoder.state_dict() == {}
    assert {buffer.dtype for buffer in decoder.buffers()} == {torch.float32}
