"""The encoder in Triton kernels against the one in torch, interpreted on a machine without a GPU: tiny sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.oracle.vae import official_vae, randomize
from tests.vae.architectures import SMALL
from voxcpm_core.kernels.kernel_set import TORCH_KERNELS, triton_kernels
from voxcpm_core.vae import VaeEncoder, chunks

triton_encoder = pytest.importorskip("voxcpm_core.vae.triton_encoder", reason="Triton has no build for this machine")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# Of each generation, with fewer samples than elsewhere: an interpreted program takes a tenth of a second.
ARCHITECTURES = {
    "0.5": replace(SMALL["v1"], encoder_rates=(2, 2)),
    "1.5": replace(SMALL["v1_odd_rates"], encoder_rates=(2, 3)),
    "2": replace(SMALL["v2"], encoder_rates=(3, 2)),
    "dense": SMALL["v1_dense"],
}


def reference(name: str, device: torch.device | str = "cpu") -> VaeEncoder:
    """On the CPU by default: cuDNN may round to TF32."""
    config = ARCHITECTURES[name]
    return VaeEncoder.from_tensors(config, randomize(official_vae(config), seed=1), device)


@pytest.mark.parametrize(
    ("name", "chunk_frames", "num_frames", "fused_channels"),
    [("0.5", 3, 3, 0), ("1.5", 1, 4, 128), ("1.5", 3, 5, 4), ("2", 2, 5, 0), ("2", 4, 1, 128)],
)
def test_chunks_equal_the_whole_in_torch(name, chunk_frames, num_frames, fused_channels, monkeypatch):
    """Chunks shorter than what convolutions look back at, longer ones, and a last one that silence fills up."""
    whole = reference(name)
    samples = num_frames * whole.config.hop_length - 1
    waveform = 0.3 * torch.randn(1, samples, generator=torch.Generator().manual_seed(6))
    expected = whole.encode(waveform)
    assert expected.std() > 0.01
    monkeypatch.setattr(chunks, "CHUNK_FRAMES", chunk_frames)
    found = triton_encoder.TritonVaeEncoder(reference(name, DEVICE), fused_channels).encode(waveform.to(DEVICE)).cpu()
    assert found.shape == expected.shape == (1, 8, num_frames)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_samples_beyond_fp16_give_finite_latents(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_FRAMES", 1)
    encoder = triton_encoder.TritonVaeEncoder(reference("2", DEVICE))
    waveform = torch.full((1, encoder.config.hop_length), 1e6, device=DEVICE)
    assert torch.isfinite(encoder.encode(waveform)).all()


def test_the_kernels_of_a_device_bring_their_encoder():
    expected, dense = reference("2"), reference("dense")
    assert TORCH_KERNELS.vae_encoder(expected) is expected
    kernels = triton_kernels(torch.device("cpu"))
    assert isinstance(kernels.vae_encoder(expected), triton_encoder.TritonVaeEncoder)
    assert kernels.vae_encoder(dense) is dense
    with pytest.raises(ValueError, match="depthwise"):
        triton_encoder.TritonVaeEncoder(dense)
