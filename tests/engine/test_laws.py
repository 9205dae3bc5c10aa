"""What must hold whatever the schedule: alone = in a crowd, run-ahead = lock-step, one terminal event, balance."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.engine.harness import SMALL, Harness
from tests.engine.requests import crowd

CROWD_SIZE = 24
FP32 = {"atol": 1e-5, "rtol": 0}


@pytest.mark.parametrize("generation", ["0.5", "1.5", "2"])
def test_alone_equals_in_a_changing_crowd(generation, tiny_checkpoints):
    harness = Harness(tiny_checkpoints[generation])
    requests = crowd(CROWD_SIZE, reference=generation == "2")
    alone = [harness.run(request) for request in requests]
    for steps_between in (0, 2):
        together = harness.run_staggered(requests, steps_between)
        for request, one, other in zip(requests, alone, together, strict=True):
            other.check_order()
            assert other.finish_reason == one.finish_reason
            np.testing.assert_allclose(other.latents, one.latents, **FP32)
            assert (other.patches[0].audio is not None) == request.wants_audio
            if request.wants_audio:
                np.testing.assert_allclose(other.audio, one.audio, **FP32)


def test_requests_differ_from_each_other(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    first = [received.latents[0].tobytes() for received in harness.run_staggered(crowd(CROWD_SIZE), 0)]
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("steps_between", [0, 1])
def test_run_ahead_equals_lock_step(steps_between, stopping_checkpoint):
    requests = crowd(CROWD_SIZE)
    results, num_steps = {}, {}
    for run_ahead in ("on", "off"):
        harness = Harness(stopping_checkpoint, dataclasses.replace(SMALL, max_running=5, run_ahead=run_ahead))
        results[run_ahead] = harness.run_staggered(requests, steps_between)
        num_steps[run_ahead] = harness.core.stats().num_steps
    for ahead, lock_step in zip(results["on"], results["off"], strict=True):
        ahead.check_order()
        assert ahead.finish_reason == lock_step.finish_reason
        np.testing.assert_allclose(ahead.latents, lock_step.latents, atol=1e-6, rtol=0)
    assert num_steps["on"] == num_steps["off"], "running ahead wastes no step"
    assert {received.finish_reason.value for received in results["on"]} == {"stop", "length"}


def test_eight_requests_take_one_batched_dit_call_per_evaluation(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"])
    requests = [
        dataclasses.replace(r, params=dataclasses.replace(r.params, inference_timesteps=10, max_length=5, min_length=9))
        for r in crowd(8)
    ]
    for request in requests:  # new audio is encoded before its request joins
        harness.run(dataclasses.replace(request, params=dataclasses.replace(request.params, max_length=1)))
    before = harness.core.stats()
    harness.run_staggered(requests, 0)
    after = harness.core.stats()
    assert after.num_steps - before.num_steps == 5
    assert after.num_prefills - before.num_prefills == 8
    assert after.num_dit_calls - before.num_dit_calls == 5 * 9, "nine evaluations a step for all eight together"


@pytest.mark.parametrize("run_ahead", ["on", "off"])
@pytest.mark.parametrize("seed", range(4))
def test_slots_and_pages_balance_with_cancels_in_every_phase(seed, run_ahead, stopping_checkpoint):
    config = dataclasses.replace(SMALL, max_running=3, kv_cache_mib=1, run_ahead=run_ahead)
    harness = Harness(stopping_checkpoint, config)
    rng = np.random.default_rng(seed)
    received = []
    for request in crowd(CROWD_SIZE):
        received.append(harness.add(request))
        for _ in range(rng.integers(0, 3)):
            harness.step()
        if rng.random() < 0.5:
            harness.cancel(int(rng.integers(0, len(received))))
            harness.cancel(10_000)
    harness.drain()
    stats = harness.core.stats()
    assert (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0)
    assert all(stream.ended for stream in received)
    codes = {stream.error_code for stream in received}
    assert codes == {None, "CANCELLED"}


def test_a_cancelled_stream_gets_nothing_after_and_frees_its_slot_at_once(tiny_checkpoints):
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SMALL, max_running=1))
    requests = [
        dataclasses.replace(r, params=dataclasses.replace(r.params, max_length=9, min_length=9)) for r in crowd(2)
    ]
    first, second = (harness.add(request) for request in requests)
    harness.step()
    harness.step()
    harness.cancel(0)
    assert first.error_code == "CANCELLED"
    assert not second.events
    harness.step()
    assert len(first.patches) == 2
    assert len(second.patches) == 1


def test_a_raising_prefill_hurts_its_own_request_alone(tiny_checkpoints, monkeypatch):
    harness = Harness(tiny_checkpoints["2"])
    model, calls = harness.core.runner.model, itertools.count()
    prefill = model.prefill

    def raising(*args):
        if next(calls) == 1:  # the second newcomer's
            raise RuntimeError("a fault inside")
        return prefill(*args)

    monkeypatch.setattr(model, "prefill", raising)
    requests = crowd(3)
    received = harness.run_staggered(requests, 0)
    assert [stream.error_code for stream in received] == [None, "INTERNAL", None]
    assert harness.core.stats().pages_used == 0
    alone = Harness(tiny_checkpoints["2"]).run(requests[2])
    np.testing.assert_allclose(received[2].latents, alone.latents, **FP32)


def test_a_raising_step_ends_its_streams_and_the_engine_goes_on(tiny_checkpoints, monkeypatch):
    harness = Harness(tiny_checkpoints["2"])
    broken = harness.add(crowd(1)[0])
    with monkeypatch.context() as patch:
        patch.setattr(harness.core.runner.model, "advance", lambda *_: 1 / 0)
        harness.step()
    assert broken.error_code == "INTERNAL"
    assert "division" not in str(broken.events[-1].error)
    assert harness.run(crowd(1)[0]).error_code is None


def test_a_stream_that_is_not_finite_ends_and_spoils_nothing(tiny_checkpoints):
    """Its pages and slot go to others, who must not meet what it left there."""
    harness = Harness(tiny_checkpoints["2"], dataclasses.replace(SMALL, max_running=4))
    requests = crowd(8)
    clean = [harness.run(request) for request in requests]
    spoiled = dataclasses.replace(
        harness.prepare(requests[0]), cfg_value=float("nan"), max_patches=30
    )
    received = [harness.add(spoiled), *(harness.add(request) for request in requests)]
    harness.drain()
    assert received[0].error_code == "INTERNAL"
    assert harness.core.stats().pages_used == 0
    again = [harness.run(request) for request in requests]
    for one, together, after in zip(clean, received[1:], again, strict=True):
        np.testing.assert_allclose(together.latents, one.latents, **FP32)
        np.testing.assert_allclose(after.latents, one.latents, **FP32)
