"""What is made of prompts and references is made once, and a second use gives what the first one gave."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd, tone
from tests.lora.adapters import add_adapter
from voxcpm_core.runner.tensor_cache import TensorCache
from voxcpm_core.types import Condition, SamplingParams, SpeechRequest

FP32 = {"atol": 1e-5, "rtol": 0}


def said(**conditions) -> SpeechRequest:
    params = SamplingParams(seed=3, max_length=3, inference_timesteps=2)
    return SpeechRequest(target_text="hello", params=params, **conditions)


def combined(num_samples: int = 2000) -> SpeechRequest:
    return said(reference=tone(num_samples, 0.11), prompt=tone(num_samples), prompt_text="the world")


def num_encodings(harness: Harness) -> int:
    return harness.core.stats().num_encodings


def off(config=SMALL):
    return dataclasses.replace(config, voice_cache_mib=0)


@pytest.mark.parametrize("generation", ["0.5", "2"])
def test_second_uses_encode_nothing_and_change_nothing(generation, tiny_checkpoints):
    requests = crowd(5, reference=generation == "2")
    harness, plain = Harness(tiny_checkpoints[generation]), Harness(tiny_checkpoints[generation], off())
    first = [harness.run(request) for request in requests]
    stats = harness.core.stats()
    num_conditions = sum((each.prompt is not None) + (each.reference is not None) for each in requests)
    assert (stats.num_encodings, stats.num_voice_hits, stats.num_voice_misses) == (num_conditions, 0, num_conditions)
    second = [harness.run(request) for request in requests]
    assert harness.core.stats().num_encodings == num_conditions
    assert harness.core.stats().num_voice_hits == num_conditions
    for request, one, other in zip(requests, first, second, strict=True):
        np.testing.assert_allclose(other.latents, one.latents, **FP32)
        np.testing.assert_allclose(other.latents, plain.run(request).latents, **FP32)
        if request.wants_audio:
            np.testing.assert_allclose(other.audio, one.audio, **FP32)
    assert num_encodings(plain) == num_conditions
    assert plain.core.stats().voice_cache_bytes == 0


def test_it_is_found_by_content_and_side_alone(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    clip = tone(3000)
    harness.run(said(reference=clip))
    harness.run(said(reference=Condition(waveform=clip.waveform.copy())))
    assert num_encodings(harness) == 1, "another object with the same samples"
    harness.run(said(prompt=clip, prompt_text="hello"))
    assert num_encodings(harness) == 2, "a prompt is filled up on the other side"
    changed = clip.waveform.copy()
    changed[-1] += 1e-3
    harness.run(said(reference=Condition(waveform=changed)))
    assert num_encodings(harness) == 3, "one sample is another"
    latents = harness.encode(clip.waveform, "right")
    by_latents = [harness.run(said(reference=Condition(latents=latents))) for _ in range(2)]
    assert num_encodings(harness) == 4, "that of the call before"
    assert harness.core.stats().num_voice_hits == 2
    np.testing.assert_allclose(by_latents[1].latents, harness.run(said(reference=clip)).latents, **FP32)


def test_newcomers_of_one_step_share_too(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    received = [harness.add(combined()) for _ in range(3)]
    harness.drain()
    assert num_encodings(harness) == 2
    for each in received[1:]:
        np.testing.assert_allclose(each.latents, received[0].latents, **FP32)


def test_an_adapter_has_embeddings_of_its_own(tiny_checkpoints, tmp_path):
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SMALL, lora_root=str(tmp_path)))
    adapted = dataclasses.replace(said(reference=tone(3000)), lora=add_adapter(tmp_path, harness.model, "x", seed=1))
    plain = dataclasses.replace(adapted, lora=None)
    first = [harness.run(request) for request in (plain, adapted)]
    stats = harness.core.stats()
    assert (stats.num_encodings, stats.num_voice_misses) == (1, 2)
    again = [harness.run(request) for request in (plain, adapted)]
    assert harness.core.stats().num_voice_hits == 2
    for one, other in zip(first, again, strict=True):
        np.testing.assert_allclose(other.latents, one.latents, **FP32)
    alone = Harness(tiny_checkpoints["2"], dataclasses.replace(SMALL, lora_root=str(tmp_path))).run(adapted)
    np.testing.assert_allclose(first[1].latents, alone.latents, **FP32)
    assert np.abs(first[0].latents - first[1].latents).max() > 1e-2, "the adapter must matter"


def test_what_was_thrown_out_is_made_again_alike(tiny_checkpoints, monkeypatch):
    harness = Harness(tiny_checkpoints["2"])
    cache = harness.core.runner.conditions._cache
    first = harness.run(combined())
    monkeypatch.setattr(cache, "max_bytes", cache.num_bytes)
    for num_samples in (1900, 1800):
        harness.run(combined(num_samples))
        assert harness.core.stats().voice_cache_bytes <= cache.max_bytes
    before = num_encodings(harness)
    again = harness.run(combined())
    assert num_encodings(harness) == before + 1, "of the reference there are still pages"
    np.testing.assert_allclose(again.latents, first.latents, **FP32)
    np.testing.assert_allclose(again.audio, first.audio, **FP32)
    harness.core.forget_voices()
    assert harness.core.stats().voice_cache_bytes == harness.core.stats().pages_kept == 0
    np.testing.assert_allclose(harness.run(combined()).latents, first.latents, **FP32)
    assert num_encodings(harness) == before + 3


def test_the_least_recently_used_goes_first():
    cache = TensorCache(max_bytes=3 * 40)
    tensors = {name: torch.zeros(10) for name in "abcd"}
    for name in "abc":
        cache.put(name, tensors[name])
    assert cache.get("a") is tensors["a"]
    cache.put("d", tensors["d"])
    assert cache.get("b") is None
    assert [cache.get(name) is tensors[name] for name in "acd"] == [True] * 3
    cache.put("large", torch.zeros(31))
    assert cache.get("large") is None
    assert (cache.num_bytes, cache.get("a") is tensors["a"]) == (120, True), "what can never fit throws nothing out"
    TensorCache(max_bytes=0).put("a", tensors["a"])
