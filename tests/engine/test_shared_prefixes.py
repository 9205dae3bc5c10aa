"""Streams that begin with another's pages give what they give alone, whoever comes, goes and fails."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import voiced_crowd
from tests.lora.adapters import add_adapter
from voxcpm_core.checkpoint.load import load_config
from voxcpm_core.config import EngineConfig
from voxcpm_core.types import SamplingParams, SpeechRequest

FP32 = {"atol": 1e-5, "rtol": 0}


def off(config: EngineConfig) -> EngineConfig:
    return dataclasses.replace(config, voice_cache_mib=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"page_size": 16, "run_ahead": "on"},
        {"page_size": 8, "run_ahead": "off"},  # some voices end with a page
        {"page_size": 64, "run_ahead": "on"},  # no page is full
        {"page_size": 4, "run_ahead": "on", "kv_cache_mib": 1, "max_model_len": 96},  # pages are always short
    ],
)
def test_sharing_changes_nothing(changes, stopping_checkpoint):
    config = dataclasses.replace(SMALL, max_running=4, **changes)
    harness, plain = Harness(stopping_checkpoint, config), Harness(stopping_checkpoint, off(config))
    requests = voiced_crowd(harness.model.encoder_samples_per_patch, 12)
    received = []
    for index, request in enumerate(requests):
        received.append(harness.add(request))
        for _ in range((index + 1) % 3):
            harness.step()
            harness.core._scheduler.check_integrity()
    harness.drain()
    harness.core._scheduler.check_integrity()
    stats = harness.core.stats()
    assert stats.num_shared_positions > 30
    num_prefilled = sum(harness.prepare(request).num_prefill for request in requests)
    assert stats.num_prefill_positions + stats.num_shared_positions == num_prefilled
    for request, shared in zip(requests, received, strict=True):
        alone = plain.run(request)
        shared.check_order()
        assert shared.finish_reason == alone.finish_reason
        np.testing.assert_allclose(shared.latents, alone.latents, **FP32)
        np.testing.assert_allclose(shared.audio, alone.audio, **FP32)
    assert plain.core.stats().num_shared_positions == 0


def test_a_second_use_prefills_its_own_text_alone_and_encodes_nothing(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    with_reference, _, with_both = voiced_crowd(harness.model.encoder_samples_per_patch, 3)
    with_both = dataclasses.replace(with_both, reference=with_reference.reference)
    for request in (with_reference, with_both):
        harness.run(request)
        before = harness.core.stats()
        harness.run(request)
        after = harness.core.stats()
        prepared = harness.prepare(request)
        num_own = prepared.num_prefill - prepared.num_voice_positions
        assert after.num_encodings == before.num_encodings
        assert after.num_prefill_positions - before.num_prefill_positions == num_own
        assert after.num_shared_positions - before.num_shared_positions == prepared.num_voice_positions
        assert after.num_voice_misses == before.num_voice_misses


def test_what_was_given_up_is_made_again_alike(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SMALL, max_running=2, kv_cache_mib=1, page_size=8))
    requests = voiced_crowd(harness.model.encoder_samples_per_patch, 3)
    first = [harness.run(request) for request in requests]
    assert harness.core.stats().pages_kept > 0
    pages = harness.core._scheduler._pages
    everything = SpeechRequest(target_text="hello", params=SamplingParams(length_cap=False, ignore_stop=True))
    long = [harness.add(everything) for _ in range(2)]
    harness.step()
    assert pages.num_pages - pages.num_used < 3 + harness.core.stats().pages_kept
    for stream_id in range(3, 5):
        harness.cancel(stream_id)
    assert all(stream.error_code == "CANCELLED" for stream in long)
    harness.core.forget_voices()
    for request, one in zip(requests, first, strict=True):
        np.testing.assert_allclose(harness.run(request).latents, one.latents, **FP32)


@pytest.mark.parametrize("seed", range(2))
def test_pages_balance_with_cancels_adapters_and_faults(seed, stopping_checkpoint, tmp_path):
    refs = [None, add_adapter(tmp_path, load_config(stopping_checkpoint), "x", r=2, seed=seed)]
    config = dataclasses.replace(
        SMALL, max_running=3, kv_cache_mib=1, lora_root=str(tmp_path), run_ahead=("off", "on")[seed % 2]
    )
    harness, plain = Harness(stopping_checkpoint, config), Harness(stopping_checkpoint, off(config))
    rng = np.random.default_rng(seed)
    voiced = voiced_crowd(harness.model.encoder_samples_per_patch, 12)
    requests = [dataclasses.replace(each, lora=refs[rng.integers(2)]) for each in voiced]
    received = []
    for index, request in enumerate(requests):
        prepared = harness.prepare(request)
        if index == 2:  # never finite
            prepared = dataclasses.replace(prepared, cfg_value=float("nan"))
        received.append(harness.add(prepared))
        for _ in range(rng.integers(3)):
            harness.step()
            harness.core._scheduler.check_integrity()
        if index % 5 == 4:
            harness.cancel(index - int(rng.integers(2)))
    harness.drain()
    harness.core._scheduler.check_integrity()
    assert harness.core.stats().pages_used == 0
    assert {each.error_code for each in received} == {None, "CANCELLED", "INTERNAL"}
    assert harness.core.stats().num_shared_positions > 0
    for request, each in zip(requests, received, strict=True):
        if each.error_code is None:
            np.testing.assert_allclose(each.latents, plain.run(request).latents, **FP32)


def test_nothing_of_a_broken_stream_is_left_to_others(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    request = voiced_crowd(harness.model.encoder_samples_per_patch, 1)[0]
    harness.add(dataclasses.replace(harness.prepare(request), cfg_value=float("nan")))
    harness.drain()
    stats = harness.core.stats()
    assert (stats.pages_kept, stats.voice_cache_bytes, stats.pages_used) == (0, 0, 0)
    assert harness.run(request).error_code is None
    assert harness.core.stats().num_shared_positions == 0


def test_a_prefill_that_raises_leaves_nothing_to_share(tiny_checkpoints, monkeypatch):
    harness = Harness(tiny_checkpoints["2"])
    request = voiced_crowd(harness.model.encoder_samples_per_patch, 1)[0]
    with monkeypatch.context() as patch:
        patch.setattr(harness.core.runner.model, "prefill", lambda *_: 1 / 0)
        assert harness.run(request).error_code == "INTERNAL"
    assert harness.core.stats().pages_kept == 0
    expected = Harness(tiny_checkpoints["2"]).run(request)
    for _ in range(2):
        np.testing.assert_allclose(harness.run(request).latents, expected.latents, **FP32)
