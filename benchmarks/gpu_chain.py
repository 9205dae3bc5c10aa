"""The ensemble's AudioVAE on a CUDA device beside the same on the CPU: part of `gpu_check`."""

from __future__ import annotations

import numpy as np

from benchmarks.gpu_kernels import Check
from voxcpm_core.chain.decoding import LoadedDecoder
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.locate import DEMO_FOLDER

NUM_PATCHES, NUM_CONTEXT_PATCHES = 20, 3
LEAST_SNR_DB = 60.0


def check_chain(check: Check, device: str) -> None:
    """A stream of the demo that starts with latents which are not heard."""
    model = load_config(DEMO_FOLDER)
    rng = np.random.default_rng(3)
    frames = (NUM_CONTEXT_PATCHES + NUM_PATCHES) * model.patch_size
    latents = rng.standard_normal((frames, model.feat_dim)).astype(np.float32)
    context, heard = np.split(latents, [NUM_CONTEXT_PATCHES * model.patch_size])
    here, there = (
        LoadedDecoder(DEMO_FOLDER, model, where).stream(context).decode(heard).astype(np.float64)
        for where in ("cpu", device)
    )
    noise_share = float(((there - here) ** 2).sum() / (here**2).sum())
    check("audiovae of the ensemble, CUDA's noise in the CPU's sound", noise_share, 10 ** (-LEAST_SNR_DB / 10))
