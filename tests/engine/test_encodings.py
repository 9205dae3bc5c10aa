"""New audio is encoded a chunk a step, beside streams that run, and hurts none but its own request."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import tone
from voxcpm_core.errors import shutting_down
from voxcpm_core.types import SamplingParams, SpeechRequest
from voxcpm_core.vae import chunks

NUM_CHUNKS = 6


@pytest.fixture
def harness(tiny_checkpoints, monkeypatch) -> Harness:
    """Whose audio takes many chunks."""
    monkeypatch.setattr(chunks, "CHUNK_FRAMES", 4)
    return Harness(tiny_checkpoints["2"], dataclasses.replace(SMALL, run_ahead="on"))


def said(max_length: int = 3, **conditions) -> SpeechRequest:
    params = SamplingParams(seed=3, max_length=max_length, ignore_stop=True, length_cap=False, inference_timesteps=2)
    return SpeechRequest(target_text="hello", params=params, **conditions)


def long_audio(harness: Harness, step: float = 0.05):
    return tone(NUM_CHUNKS * 4 * harness.model.vae.hop_length, step)


def test_running_streams_and_newcomers_get_a_patch_each_step_meanwhile(harness):
    expected = harness.run(said(reference=long_audio(harness)))
    harness.core.forget_voices()
    running = harness.add(said(max_length=40))
    harness.step()
    waiting = harness.add(said(reference=long_audio(harness)))
    other = harness.add(said())
    for num_steps in range(1, NUM_CHUNKS + 1):
        assert harness.core.stats().waiting == 1 + (num_steps == 1)
        before = len(running.patches)
        harness.step()
        assert len(running.patches) == before + 1
    assert not waiting.events
    assert other.ended
    assert harness.core.stats().num_encodings == 2
    harness.drain()
    np.testing.assert_allclose(waiting.latents, expected.latents, atol=1e-5, rtol=0)


def test_equal_audio_that_waits_is_encoded_once(harness):
    received = [harness.add(said(reference=long_audio(harness))) for _ in range(3)]
    harness.drain()
    assert harness.core.stats().num_encodings == 1
    for each in received[1:]:
        np.testing.assert_allclose(each.latents, received[0].latents, atol=1e-5, rtol=0)


def test_without_a_cache_what_was_encoded_reaches_its_prefill(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SMALL, voice_cache_mib=0))
    harness.run(said(reference=tone(500), prompt=tone(300), prompt_text="the"))
    assert harness.core.stats().num_encodings == 2


def test_a_cancel_in_the_middle_leaves_nothing(harness):
    audio = long_audio(harness)
    received = [harness.add(said(reference=audio)), harness.add(said(prompt=audio, prompt_text="the"))]
    harness.step()
    harness.cancel(0)
    assert [each.error_code for each in received[:1]] == ["CANCELLED"]
    harness.drain()
    assert received[1].error_code is None
    assert (harness.core.stats().waiting, harness.core.stats().pages_used) == (0, 0)


def test_a_fault_in_the_encoder_is_that_of_its_own_request(harness, monkeypatch):
    running = harness.add(said(max_length=6))
    harness.step()
    with monkeypatch.context() as patch:
        patch.setattr(harness.core.runner.conditions._encoder, "encode_chunk", lambda *_: 1 / 0)
        broken = harness.add(said(reference=long_audio(harness)))
        file = harness.core.encode(long_audio(harness).waveform, "left")
        harness.step()
        harness.step()
    assert broken.error_code == "INTERNAL"
    assert "division" not in str(file.exception())
    harness.drain()
    assert running.error_code is None
    assert harness.run(said(reference=long_audio(harness))).error_code is None


def test_files_are_encoded_likewise_and_answered_when_all_ends(harness):
    audio = long_audio(harness)
    running = harness.add(said(max_length=12))
    first, second = (harness.core.encode(audio.waveform, "right") for _ in range(2))
    for _ in range(NUM_CHUNKS):
        assert not first.done()
        harness.step()
    assert first.result().shape == (NUM_CHUNKS * 4, harness.model.feat_dim)
    assert len(running.patches) >= NUM_CHUNKS - 1
    harness.core.fail_all(shutting_down())
    assert second.exception().code.value == "NOT_READY"
    assert not harness.core.has_work or harness.core._in_flight
