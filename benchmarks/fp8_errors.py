"""A model with weights in float8 beside the same one without, which both are fed the patches of the latter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from voxcpm_core.kernels.noise import philox_normal
from voxcpm_core.kernels.paged_attention import PagedContext
from voxcpm_core.model.kv_cache import KvCache
from voxcpm_core.model.language_model import LmOutput
from voxcpm_core.model.voxcpm import VoxCPMModel

PAGE_SIZE = 64
CFG_VALUE, NUM_STEPS = 2.0, 10


class Side:
    """One of the two models, with a cache of its own for a batch of streams."""

    def __init__(self, model: VoxCPMModel, num_streams: int, num_positions: int) -> None:
        pages_each = -(-num_positions // PAGE_SIZE)
        num_pages = num_streams * pages_each
        self.model = model
        self._cache = KvCache(model.config, num_pages, PAGE_SIZE, model.device, model.dtype)
        self._pages = torch.arange(num_pages, device=model.device).view(num_streams, pages_each)

    def prefill(self, ids: Sequence[Tensor]) -> LmOutput:
        """Texts int64 [S] each, one after the other."""
        model, outputs = self.model, []
        for row, text in enumerate(ids):
            audio = torch.zeros(1, len(text), model.config.base_lm.hidden_size, device=model.device, dtype=model.dtype)
            context = self._context(slice(row, row + 1), torch.arange(len(text), device=model.device).unsqueeze(0))
            last = torch.tensor([len(text) - 1], device=model.device)
            outputs.append(model.prefill(text.unsqueeze(0), audio, last, self._cache, context))
        return LmOutput(*(torch.cat(parts) for parts in zip(*outputs, strict=True)))

    def advance(self, patches: Tensor, positions: Tensor) -> LmOutput:
        """patches: [B, P, C], which take these positions, int64 [B]."""
        return self.model.advance(patches, self._cache, self._context(slice(None), positions.unsqueeze(1)))

    def mu(self, output: LmOutput) -> Tensor:
        return self.model.conditioning(output.lm_hidden, output.res_hidden)

    def _context(self, rows: slice, positions: Tensor) -> PagedContext:
        table = self._pages[rows]
        return PagedContext(table, positions, table.shape[1] * PAGE_SIZE, PAGE_SIZE)


@torch.inference_mode()
def relative_errors(
    exact: VoxCPMModel, rounded: VoxCPMModel, ids: Sequence[Tensor], num_patches: int
) -> dict[str, float]:
    """|rounded - exact| / |exact| of each component over all patches of all texts, and how often the stop head agrees.

    The DiT is given the exact conditions, except for "own conditions"; language models their own embeddings and past.
    """
    longest = max(len(text) for text in ids) + num_patches
    sides = [Side(model, len(ids), longest) for model in (exact, rounded)]
    squares: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    num_equal = 0

    def compare(name: str, expected: Tensor, found: Tensor) -> None:
        squares[name][0] += float((found.double() - expected.double()).square().sum())
        squares[name][1] += float(expected.double().square().sum())

    outputs = [side.prefill(ids) for side in sides]
    positions = torch.tensor([len(text) for text in ids], device=exact.device)
    config = exact.config
    last = torch.zeros(len(ids), config.patch_size, config.feat_dim, device=exact.device, dtype=exact.dtype)
    for index in range(num_patches):
        compare("base LM, hidden state", *(output.lm_hidden for output in outputs))
        compare("residual LM, hidden state", *(output.res_hidden for output in outputs))
        num_equal += int((outputs[0].stop == outputs[1].stop).sum())
        noise = _noise(exact, len(ids), index)
        mu, own_mu = (side.mu(output) for side, output in zip(sides, outputs, strict=True))
        patch = noise
        for expected, found, patch in _velocities(exact, rounded, noise, mu, last):  # noqa: B007
            compare("DiT, velocity", expected, found)
        cfg_values = torch.full((len(ids),), CFG_VALUE, device=exact.device)
        compare("patch", patch, rounded.dit.solve(noise, mu, last, cfg_values, NUM_STEPS))
        compare("patch, own conditions", patch, rounded.dit.solve(noise, own_mu, last, cfg_values, NUM_STEPS))
        compare("local encoder, embedding", exact.local_encoder(patch), rounded.local_encoder(patch))
        outputs = [side.advance(patch, positions + index) for side in sides]
        last = patch
    errors = {name: (off / whole) ** 0.5 for name, (off, whole) in squares.items()}
    return errors | {"stop head, share of other decisions": 1 - num_equal / (num_patches * len(ids))}


def _velocities(
    exact: VoxCPMModel, rounded: VoxCPMModel, noise: Tensor, mu: Tensor, last: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Both velocities at each evaluation along the exact way, and where that leads to.

    Those with the condition: a step of one with guidance of one goes along them, rounded as x is.
    """
    schedule, time_tokens = exact.dit.schedule(NUM_STEPS)
    cfg_values = torch.full((len(mu),), CFG_VALUE, device=mu.device)
    one = torch.ones_like(cfg_values)
    x, given = noise, exact.dit.given(mu, last)
    for evaluation, token in zip(schedule, time_tokens, strict=True):
        expected, found = (
            x - model.dit.evaluate(x, given, one, token, one[0].to(x.dtype)) for model in (exact, rounded)
        )
        x = exact.dit.evaluate(x, given, cfg_values, token, evaluation.step)
        yield expected, found, x


def _noise(model: VoxCPMModel, num_streams: int, index: int) -> Tensor:
    """Of patch `index` of the seeds 0, 1, 2, ... # [B, P, C]"""
    config = model.config
    seeds = torch.arange(num_streams, device=model.device)
    drawn = philox_normal(seeds, torch.full_like(seeds, index), config.patch_size * config.feat_dim)
    return drawn.unflatten(1, (config.patch_size, config.feat_dim)).to(model.dtype)
