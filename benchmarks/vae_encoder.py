"""The AudioVAE encoder on a CUDA device: `python -m benchmarks.vae_encoder [--releases 2]`.

Random weights in the released sizes. ms of a chunk of audio in torch and in the kernels, as an engine launches it, and
how far apart their latents are; the check is part of `gpu_check`, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.card import describe
from benchmarks.machine import as_line
from benchmarks.timing import median_ms
from voxcpm_core.checkpoint.random_init import random_vae_tensors
from voxcpm_core.checkpoint.releases import RELEASES, release_config
from voxcpm_core.config import ModelConfig
from voxcpm_core.vae import ChunkedEncoder, VaeEncoder
from voxcpm_core.vae.chunks import CHUNK_FRAMES
from voxcpm_core.vae.triton_encoder import TritonVaeEncoder

NUM_FRAMES = 2 * CHUNK_FRAMES + 9  # of the audio that is compared
LIMIT = 1e-4  # of the largest latent: products of fp16 halves miss 2^-22 of each sum


def encoders(release: str) -> tuple[ChunkedEncoder, ChunkedEncoder]:
    """In torch and in the kernels."""
    config = ModelConfig.from_json(release_config(release))
    tensors = random_vae_tensors(config, 0.3, torch.Generator().manual_seed(0))
    reference = VaeEncoder.from_tensors(config.vae, tensors, "cuda")
    return reference, TritonVaeEncoder(reference)


def noise(encoder: ChunkedEncoder, num_frames: int) -> Tensor:
    """# [1, samples]"""
    generator = torch.Generator("cuda").manual_seed(1)
    return 0.3 * torch.randn(1, num_frames * encoder.config.hop_length, generator=generator, device="cuda")


@torch.inference_mode()
def check_encoders(check: Callable[[str, float, float], None]) -> None:
    """Both give the same latents. `check`: name, value, limit."""
    torch.backends.cudnn.allow_tf32 = False
    for release in RELEASES:
        expected, found = (each.encode(noise(each, NUM_FRAMES)) for each in encoders(release))
        apart = float((found - expected).abs().max() / expected.abs().max())
        check(f"AudioVAE encoder of VoxCPM{release}, largest difference to torch", apart, LIMIT)


@torch.inference_mode()
def chunk_ms(encoder: ChunkedEncoder) -> float:
    chunk, state = noise(encoder, CHUNK_FRAMES).unsqueeze(1), encoder.new_state(1)
    return median_ms(lambda: encoder.encode_chunk(chunk, state))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", nargs="*", default=list(reversed(RELEASES)), choices=RELEASES)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device", file=sys.stderr)
        return 1
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print(as_line(describe()))
    for release in arguments.releases:
        in_torch, in_kernels = encoders(release)
        seconds = CHUNK_FRAMES * in_torch.config.hop_length / in_torch.config.encoder_sample_rate
        print(f"VoxCPM{release}, a chunk of {seconds:.2f} s: torch {chunk_ms(in_torch):.2f} ms, "
              f"kernels {chunk_ms(in_kernels):.2f} ms", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
