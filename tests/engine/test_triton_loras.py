"""Adapters' Triton kernels in a whole engine, interpreted: who shares their programs changes from step to step."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoint.lora_folder import ATTENTION, MLP
from tests.engine.harness import CPU, SMALL, Harness
from tests.engine.requests import crowd, short
from tests.lora.adapters import add_adapter
from voxcpm_core.engine import build
from voxcpm_core.kernels.kernel_set import TORCH_KERNELS

triton_layer_ops = pytest.importorskip(
    "voxcpm_core.kernels.triton_layer_ops", reason="Triton has no build for this machine"
)
triton_lora = pytest.importorskip("voxcpm_core.kernels.triton_lora", reason="Triton has no build for this machine")


@pytest.mark.parametrize("folds", [False, True], ids=["", "folded"])
def test_streams_come_and_go_as_with_torch_and_as_alone(
    folds: bool, tiny_checkpoints: dict[str, Path], tmp_path, monkeypatch
):
    """`folds`: the layers in Triton, too, which have weights of norms in those of products, and so in adapters."""
    (tmp_path / "loras").mkdir()
    config = dataclasses.replace(SMALL, lora_root=str(tmp_path / "loras"), lora_mlp="on", max_loras=2)
    with_torch = Harness(tiny_checkpoints["2"], config)
    ours = dataclasses.replace(TORCH_KERNELS, lora=triton_lora.triton_lora)
    if folds:
        ours = dataclasses.replace(ours, layer_ops=triton_layer_ops.TritonLayerOps(CPU))
    monkeypatch.setattr(build, "torch_kernels", lambda attention: ours)
    with_triton = Harness(tiny_checkpoints["2"], config)
    refs = [
        add_adapter(tmp_path / "loras", with_torch.model, str(i), r=4 + i, alpha=4, seed=i, names=(*ATTENTION, *MLP))
        for i in range(2)
    ]
    requests = [
        dataclasses.replace(short(request, max_length=1 + i % 2, num_steps=2), lora=lora)
        for i, (request, lora) in enumerate(zip(crowd(3), [refs[0], None, refs[1]], strict=True))
    ]

    def run(harness: Harness) -> list[np.ndarray]:
        streams = []
        for request in requests:
            streams.append(harness.add(request))
            harness.step()
        harness.drain()
        return [stream.latents for stream in streams]

    expected, found = run(with_torch), run(with_triton)
    for request, one, other in zip(requests, found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
        np.testing.assert_allclose(with_triton.run(request).latents, one, atol=1e-5)
