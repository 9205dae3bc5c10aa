"""Drives the model without an engine, over the prefill tracks and the noise of an official run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tests.oracle.model import OfficialRun
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.checkpoint.read import read_tensors
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.voxcpm import AUDIO_ROW, StreamState, VoxCPMModel

PAGE_SIZE, NUM_PAGES = 8, 64


@dataclass(frozen=True)
class Rollout:
    """Per-patch tensors in float32, to compare with an OfficialRun."""

    mu: Tensor  # [n, mu_size]
    latents: Tensor  # [n, C, P]
    stop_logits: Tensor  # [n, 2]


def load_model(folder: Path, dtype: torch.dtype) -> VoxCPMModel:
    config = load_config(folder)
    return VoxCPMModel.load(config, read_tensors(folder, config), torch.device("cpu"), dtype, config.max_length)


@torch.inference_mode()
def roll_out(model: VoxCPMModel, run: OfficialRun, num_steps: int, cfg: float, teacher_forced: bool) -> Rollout:
    """Make as many patches as the official run did. Teacher-forced: the official patches are fed back."""
    cache = KvCache(model.config, NUM_PAGES, PAGE_SIZE, model.device, model.dtype)
    pages = torch.arange(NUM_PAGES - 1, -1, -1).unsqueeze(0)
    state = _prefill(model, run, cache, pages)
    mu, latents, stop_logits = [], [], []
    for index, noise in enumerate(run.noise.transpose(1, 2).to(model.dtype)):
        mu.append(model.conditioning(state.lm_hidden, state.res_hidden))
        stop_logits.append(model.language_model.stop_logits(state.lm_hidden))
        patch = model.generate_patch(state, noise.unsqueeze(0), torch.tensor([cfg]), num_steps)
        latents.append(patch.transpose(1, 2))
        if teacher_forced:
            patch = run.latents[index : index + 1].transpose(1, 2).to(model.dtype)
        output = model.advance(patch, cache, _context(pages, len(run.prefill_ids) + index, 1))
        state = StreamState(output.lm_hidden, output.res_hidden, patch)
    return Rollout(*(torch.cat(tensors).float() for tensors in (mu, latents, stop_logits)))


def _prefill(model: VoxCPMModel, run: OfficialRun, cache: KvCache, pages: Tensor) -> StreamState:
    token_ids = run.prefill_ids.to(torch.int64).masked_fill(run.audio_mask.bool(), AUDIO_ROW).unsqueeze(0)
    positions = run.audio_mask.nonzero().flatten()
    patches = run.prefill_features[positions].to(model.dtype)
    audio = torch.zeros(1, token_ids.shape[1], model.config.base_lm.hidden_size, dtype=model.dtype)
    last_patch = torch.zeros(1, model.config.patch_size, model.config.feat_dim, dtype=model.dtype)
    if len(patches):
        audio[0, positions] = model.local_encoder(patches)
    if run.audio_mask[-1]:
        last_patch = patches[-1:]
    last = torch.tensor([token_ids.shape[1] - 1])
    output = model.prefill(token_ids, audio, last, cache, _context(pages, 0, token_ids.shape[1]))
    return StreamState(output.lm_hidden, output.res_hidden, last_patch)


def _context(pages: Tensor, start: int, length: int) -> PagedContext:
    return PagedContext(pages, torch.arange(start, start + length).unsqueeze(0), start + length, PAGE_SIZE)
