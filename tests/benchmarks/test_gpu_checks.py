"""Checks of `gpu_check` that a CPU can be given in the GPU's place, and that they can fail."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import gpu_second_uses
from benchmarks.gpu_chain import check_chain
from benchmarks.gpu_kernels import Check
from benchmarks.gpu_second_uses import check_second_uses
from tests.engine.harness import SMALL
from voxcpm_core.chain.decoding import StreamDecoding
from voxcpm_core.checkpoint.random_init import make_checkpoint

Told = dict[str, tuple[float, float]]  # value and limit by name


def test_second_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkpoint(tmp_path / "2", size="tiny", generation="2", seed=0, dtype="float32")
    for changes, num_failed in (({}, 0), ({"voice_cache_mib": 0}, 1)):
        told: Told = {}
        monkeypatch.setattr(gpu_second_uses, "SMALL", dataclasses.replace(SMALL, **changes))
        check_second_uses(noted_in(told), tmp_path / "2", torch.device("cpu"))
        assert len(told) == 4
        assert sum(value > limit for value, limit in told.values()) == num_failed, told


def test_the_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Told = {}
    check_chain(noted_in(told), "cpu")
    ((name, (value, limit)),) = told.items()
    assert value == 0 < limit
    decode = StreamDecoding.decode
    noise = iter((0.0, 2e-3))

    def noisy(self: StreamDecoding, latents: np.ndarray) -> np.ndarray:
        audio = decode(self, latents)
        return audio * (1 + next(noise))

    monkeypatch.setattr(StreamDecoding, "decode", noisy)
    check_chain(noted_in(told), "cpu")
    assert told[name][0] > limit


def noted_in(told: Told) -> Check:
    def check(name: str, value: float, limit: float) -> None:
        told[name] = value, limit

    return check
