"""Streams that begin with another's pages, on a CUDA device: part of `gpu_check`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu_kernels import Check
from tests.engine.harness import SMALL, Harness, Received
from tests.engine.requests import voiced_crowd

CROWD_SIZE, STEPS_BETWEEN = 12, 2


def check_second_uses(check: Check, folder: Path, device: torch.device) -> None:
    """In graphs, with what is kept of voices and without: the same streams, from fewer positions."""
    config = dataclasses.replace(SMALL, page_size=8)  # some voices end with a page
    kept = Harness(folder, config, device=device)
    forgotten = Harness(folder, dataclasses.replace(config, voice_cache_mib=0), device=device)
    for harness in (kept, forgotten):
        harness.core.runner.capture()
    shared, alone = _run(kept), _run(forgotten)
    name = "shared prefixes, tiny fp32,"
    check(f"{name} largest difference of latents", _largest(shared, alone, lambda stream: stream.latents), 1e-4)
    num_heard = [i for i, stream in enumerate(alone) if stream.patches[0].audio is not None]
    heard = [[streams[i] for i in num_heard] for streams in (shared, alone)]
    check(f"{name} largest difference of audio", _largest(*heard, lambda stream: stream.audio), 1e-4)
    stats = kept.core.stats()
    requests = voiced_crowd(kept.model.encoder_samples_per_patch, CROWD_SIZE)
    positions = sum(kept.prepare(request).num_prefill for request in requests)
    check(f"{name} prefilled of {positions} positions", stats.num_prefill_positions, positions - 30)
    check(f"{name} pages in use afterwards", stats.pages_used, 0)


def _run(harness: Harness) -> list[Received]:
    requests = voiced_crowd(harness.model.encoder_samples_per_patch, CROWD_SIZE)
    received = harness.run_staggered(requests, STEPS_BETWEEN)
    harness.core._scheduler.check_integrity()
    return received


def _largest(left: list[Received], right: list[Received], values: Callable[[Received], np.ndarray]) -> float:
    """Infinite where one has another length."""
    if any(values(one).shape != values(other).shape for one, other in zip(left, right, strict=True)):
        return float("inf")
    return max(float(np.abs(values(one) - values(other)).max()) for one, other in zip(left, right, strict=True))
