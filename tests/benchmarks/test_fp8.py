"""The errors of weights in float8, of each component."""

from __future__ import annotations

import torch

from benchmarks import fp8
from benchmarks.fp8_errors import relative_errors
from voxcpm_core.checkpoint.opened import open_checkpoint
from voxcpm_core.checkpoint.random_init import make_checkpoint


def test_components_are_off_by_what_their_weights_are(tmp_path):
    make_checkpoint(tmp_path / "m", size="tiny", generation="2", seed=0, dtype="float32")
    checkpoint, cpu = open_checkpoint(str(tmp_path / "m")), torch.device("cpu")
    exact, rounded = (fp8.load(checkpoint, cpu, torch.float32, of) for of in (False, True))
    ids = [fp8.token_ids(checkpoint, text, cpu) for text in ("hello the world", "hello")]
    assert set(relative_errors(exact, exact, ids, 2).values()) == {0.0}
    errors = relative_errors(exact, rounded, ids, 2)
    assert 1e-3 < errors["local encoder, embedding"] < errors["base LM, hidden state"] < 0.3
    assert 1e-3 < errors["DiT, velocity"] < 0.3
    assert errors["patch"] < errors["patch, own conditions"] < 1.0
