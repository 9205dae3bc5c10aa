"""Newcomers that are taken in, and prefilled, while a step runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd
from voxcpm_core.runner.prefill import Failures
from voxcpm_core.scheduler import Stream
from voxcpm_core.types import SamplingParams, SpeechRequest

CROWD_SIZE = 24
AHEAD = dataclasses.replace(SMALL, run_ahead="on")
NARROW = dataclasses.replace(AHEAD, max_running=5)


class Watched:
    """Wraps `prefill_beside` of a harness's runner, and looks at what it is given."""

    def __init__(self, harness: Harness) -> None:
        self._core = harness.core
        self._prefill_beside = harness.core.runner.prefill_beside
        self.num_beside = 0
        harness.core.runner.prefill_beside = self  # type: ignore[method-assign]

    def __call__(self, streams: Sequence[Stream]) -> Failures:
        used = [stream for step in self._core._in_flight for stream in step.plan.batch.streams]
        pages = {page for stream in used for page in stream.pages}
        for stream in streams:
            assert stream.slot not in {other.slot for other in used}, "a running step writes there"
            assert pages.isdisjoint(stream.pages), "a running step writes there"
            assert not stream.request.conditions
        self.num_beside += len(streams)
        return self._prefill_beside(streams)


@pytest.mark.parametrize("generation", ["0.5", "2"])
@pytest.mark.parametrize("config", [AHEAD, NARROW])
def test_who_is_prefilled_beside_a_step_gets_the_same(generation, config, tiny_checkpoints):
    requests = crowd(CROWD_SIZE, reference=generation == "2")
    alone = [Harness(tiny_checkpoints[generation], config).run(request) for request in requests]
    harness = Harness(tiny_checkpoints[generation], config)
    watched = Watched(harness)
    for one, other in zip(alone, harness.run_staggered(requests, 1, admits=True), strict=True):
        other.check_order()
        assert other.finish_reason == one.finish_reason
        np.testing.assert_allclose(other.latents, one.latents, atol=1e-5, rtol=0)
        if one.patches[0].audio is not None:
            np.testing.assert_allclose(other.audio, one.audio, atol=1e-5, rtol=0)
    assert watched.num_beside >= 5
    assert harness.core.stats().num_prefills == CROWD_SIZE


def test_slots_and_pages_balance_whoever_comes_and_goes(stopping_checkpoint):
    """Ends that the model decides on, cancels of those that are taken in and of those that run, few slots and pages."""
    rng = np.random.default_rng(3)
    harness = Harness(stopping_checkpoint, dataclasses.replace(NARROW, kv_cache_mib=1))
    watched, received = Watched(harness), []
    for _ in range(200):
        if rng.random() < 0.5 and len(received) < 120:
            params = SamplingParams(seed=len(received), inference_timesteps=2, max_length=int(rng.integers(1, 8)))
            received.append(harness.add(SpeechRequest("hello the world", params=params, wants_audio=False)))
        if rng.random() < 0.6:
            harness.core.admit()
        if received and rng.random() < 0.3:
            harness.cancel(int(rng.integers(len(received) - min(4, len(received)), len(received))))
        if rng.random() < 0.7:
            harness.step()
        harness.core._scheduler.check_integrity()
    harness.drain()
    harness.core._scheduler.check_integrity()
    assert harness.core.stats().pages_used == 0
    assert all(one.ended for one in received)
    assert watched.num_beside > 20
    assert {one.error_code for one in received} == {None, "CANCELLED"}


def test_a_prefix_that_raises_beside_a_step_hurts_its_own_stream_alone(tiny_checkpoints, monkeypatch):
    harness = Harness(tiny_checkpoints["2"], AHEAD)
    request = SpeechRequest("hello", params=SamplingParams(seed=1, max_length=4, min_length=4, ignore_stop=True))
    running = harness.add(request)
    harness.step()

    def fail(*_: Any) -> None:
        raise ValueError("broken")

    with monkeypatch.context() as broken:
        broken.setattr(harness.core.runner._prefill._runner, "run", fail)
        failing = harness.add(request)
        harness.core.admit()
    after = harness.add(request)
    harness.core.admit()
    harness.drain()
    assert failing.error_code == "INTERNAL"
    np.testing.assert_array_equal(after.latents, running.latents)
    assert harness.core.stats().pages_used == 0


def test_without_a_running_step_nobody_is_taken_in_ahead_of_one(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"], AHEAD)
    harness.add(SpeechRequest("hello", params=SamplingParams(max_length=1)))
    harness.core.admit()
    assert (harness.core.stats().running, harness.core.stats().waiting) == (0, 1)


def test_what_could_not_be_prefilled_beside_a_step_counts_in_the_next(tiny_checkpoints):
    """All slots were those of streams that the running step still runs, and newcomers are asked in one by one."""
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(NARROW, max_prefill_tokens=40))
    planned = []
    plan = harness.core._scheduler.plan
    harness.core._scheduler.plan = lambda: planned.append(plan()) or planned[-1]  # type: ignore[method-assign]
    for _ in range(5):
        params = SamplingParams(max_length=2, ignore_stop=True)
        harness.add(SpeechRequest("hello", params=params, wants_audio=False))
    for _ in range(2):
        harness.step()
    assert harness.core.stats().running == 0, "their last patches are under way, and their slots given up"
    watched = Watched(harness)
    text = SpeechRequest("hello the world " * 2, params=SamplingParams(max_length=2), wants_audio=False)
    received = []
    for _ in range(5):
        received.append(harness.add(text))
        harness.core.admit()
    harness.drain()
    assert watched.num_beside == 0
    for step in filter(None, planned):
        assert sum(stream.num_unknown for stream in step.prefills) <= 40 or len(step.prefills) == 1
    assert all(one.ended and one.error_code is None for one in received)
