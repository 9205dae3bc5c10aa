"""Stacks and the DiT in Triton kernels in a whole engine, interpreted: streams come and go, alone and together."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd, short
from voxcpm_core.engine import build
from voxcpm_core.kernels.kernel_set import TORCH_KERNELS

triton_layer_ops = pytest.importorskip(
    "voxcpm_core.kernels.triton_layer_ops", reason="Triton has no build for this machine"
)


@pytest.mark.parametrize("generation", ["0.5", "2"])
def test_streams_come_and_go_as_with_torch_and_as_alone(tiny_checkpoints: dict[str, Path], generation, monkeypatch):
    """Both ways of the DiT's conditions; products as cuBLAS does them, which have tests of their own."""
    with_torch = Harness(tiny_checkpoints[generation], SMALL)
    layer_ops = triton_layer_ops.TritonLayerOps(torch.device("cpu"), lambda shape, num_rows: None)
    ours = dataclasses.replace(TORCH_KERNELS, layer_ops=layer_ops)
    monkeypatch.setattr(build, "torch_kernels", lambda attention: ours)
    with_triton = Harness(tiny_checkpoints[generation], SMALL)
    requests = [short(request, max_length=1 + i % 2, num_steps=2) for i, request in enumerate(crowd(2, False))]
    expected, found = (harness.run_staggered(requests, 1) for harness in (with_torch, with_triton))
    for request, one, other in zip(requests, found, expected, strict=True):
        np.testing.assert_allclose(one.latents, other.latents, atol=1e-4)
        np.testing.assert_allclose(with_triton.run(request).latents, one.latents, atol=1e-5)
