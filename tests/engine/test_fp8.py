"""The engine with weights in float8: its laws hold as ever, and it is near the one without."""

from __future__ import annotations

import dataclasses
import weakref

import numpy as np

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd, short
from tests.lora.adapters import add_adapter
from voxcpm_core.kernels.fp8 import FP8
from voxcpm_core.model import weights
from voxcpm_core.model.voxcpm import VoxCPMModel

FLOAT8 = dataclasses.replace(SMALL, weights="fp8")
FP32 = {"atol": 1e-5, "rtol": 0}


def stacks(model: VoxCPMModel):
    language = model.language_model
    return language.base, language.residual, model.local_encoder.stack, model.dit.stack


def products(model: VoxCPMModel):
    layers = [layer for stack in stacks(model) for layer in stack.layers]
    return [product for layer in layers for product in (layer.qkv, layer.o, layer.gate_up, layer.down)]


def test_alone_equals_in_a_crowd_also_with_adapters(tiny_checkpoints, tmp_path):
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(FLOAT8, lora_root=str(tmp_path)))
    refs = [None, add_adapter(tmp_path, harness.model, "a", alpha=1), add_adapter(tmp_path, harness.model, "b", seed=1)]
    requests = [dataclasses.replace(short(request), lora=refs[i % 3]) for i, request in enumerate(crowd(6))]
    together = [harness.add(request) for request in requests]
    harness.drain()
    for request, stream in zip(requests, together, strict=True):
        alone = harness.run(request)
        assert stream.finish_reason == alone.finish_reason
        np.testing.assert_allclose(stream.latents, alone.latents, **FP32)
    plain = harness.run(dataclasses.replace(requests[1], lora=None))
    assert np.abs(plain.latents[0] - together[1].latents[0]).max() > 1e-2, "the adapter must matter"


def test_it_is_near_the_engine_without_and_not_the_same(tiny_checkpoints):
    request = short(crowd(1)[0])
    plain, rounded = (
        Harness(tiny_checkpoints["2"], config).run(request).latents[0].ravel() for config in (SMALL, FLOAT8)
    )
    distance = np.linalg.norm(rounded - plain) / np.linalg.norm(plain)
    assert 1e-4 < distance < 0.5, "random weights amplify it, and unrelated patches are 1.4 apart"


def test_the_products_of_blocks_alone_are_in_float8(tiny_checkpoints):
    model = Harness(tiny_checkpoints["2"], FLOAT8).core.runner.model
    for product in products(model):
        assert (product.weight.dtype, product.scales.shape) == (FP8, product.weight.shape[:1])
    others = [model._lm_to_dit, model.language_model._stop_proj, model.dit._in_proj]
    assert all(each.scales is None and each.weight.dtype == model.dtype for each in others)


def test_loading_holds_the_weights_of_one_product_besides(tiny_checkpoints, monkeypatch):
    alive: list[weakref.ref] = []
    most, quantised = 0, weights.quantised

    def counting(weight):
        nonlocal most
        alive.append(weakref.ref(weight))
        most = max(most, sum(ref() is not None for ref in alive))
        return quantised(weight)

    monkeypatch.setattr(weights, "quantised", counting)
    model = Harness(tiny_checkpoints["2"], FLOAT8).core.runner.model
    assert len(alive) == len(products(model))
    assert most == 1
