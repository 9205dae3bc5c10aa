"""The engine with attention by flash-attn, of which a stand-in does the arithmetic here."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd, short
from tests.kernels.flash_stand_in import flash_stand_in
from voxcpm_core.engine.threaded import start_engine
from voxcpm_core.errors import ConfigError

__all__ = ["flash_stand_in"]

FLASH = dataclasses.replace(SMALL, attention="flash")


def test_streams_are_those_of_the_other_attention(tiny_checkpoints, flash_stand_in):
    requests = [short(request) for request in crowd(6)]
    expected = Harness(tiny_checkpoints["2"])
    flash = Harness(tiny_checkpoints["2"], FLASH)
    streams = [[harness.add(request) for request in requests] for harness in (expected, flash)]
    for harness in (expected, flash):
        harness.drain()
    for one, other in zip(*streams, strict=True):
        assert one.finish_reason == other.finish_reason
        np.testing.assert_allclose(other.latents, one.latents, atol=1e-4, rtol=0)
    stats, model = flash.core.stats(), flash.model
    num_layers = model.base_lm.num_layers + model.residual_lm.num_layers
    assert flash_stand_in.num_calls == num_layers * (stats.num_steps + stats.num_prefills)


def test_without_what_it_needs_the_engine_does_not_start(tiny_checkpoints):
    with pytest.raises(ConfigError, match="attention: 'flash' needs a CUDA device, and the engine is on cpu"):
        start_engine(dataclasses.replace(FLASH, model=str(tiny_checkpoints["2"])), "cpu")
