"""The engine in its process does what the engine in this one does."""

import dataclasses
import itertools
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.engine.harness import Harness
from tests.lora.adapters import add_adapter
from tests.noise_voice import NOISE_FOLDER
from tests.worker.streams import CONFIG, ENDLESS, GENEROUS_S, SHORT, finished, submit, wait_until
from voxcpm_core.errors import CheckpointError, ConfigError, RequestError
from voxcpm_core.worker import start_worker


@pytest.fixture(scope="module")
def in_process():
    return Harness(NOISE_FOLDER, CONFIG)


def test_a_crowd_gets_what_each_gets_alone_in_this_process(worker, in_process, requests_of_all_kinds):
    received = [submit(worker, request)[1] for request in requests_of_all_kinds]
    for request, stream in zip(requests_of_all_kinds, received, strict=True):
        assert stream.has_ended.wait(GENEROUS_S)
        alone = in_process.run(request)
        stream.check_order()
        assert stream.finish_reason == alone.finish_reason
        assert stream.latents == pytest.approx(alone.latents, abs=1e-5)
        if request.wants_audio:
            assert stream.audio == pytest.approx(alone.audio, abs=1e-5)
        else:
            assert all(patch.audio is None for patch in stream.patches)


@pytest.mark.soak
def test_run_ahead_is_lock_step(in_process, requests_of_all_kinds):
    handle = start_worker(dataclasses.replace(CONFIG, run_ahead="on"), "cpu")
    try:
        received = [submit(handle, request)[1] for request in requests_of_all_kinds]
        for request, stream in zip(requests_of_all_kinds, received, strict=True):
            assert stream.has_ended.wait(GENEROUS_S)
            assert stream.latents == pytest.approx(in_process.run(request).latents, abs=1e-5)
    finally:
        handle.close()


def test_what_was_delivered_stays_as_it_was(worker):
    """The ring's memory is used again by later steps, but not while somebody holds what lies there."""
    first = finished(worker, SHORT)
    before = first.audio.copy()
    for _ in range(4):
        finished(worker, ENDLESS_FOR_A_WHILE)
    assert (first.audio == before).all()


ENDLESS_FOR_A_WHILE = dataclasses.replace(ENDLESS, params=dataclasses.replace(ENDLESS.params, max_length=6, seed=9))


def test_cancel_frees_the_slot_and_unknown_ids_are_ignored(worker):
    stream_id, received = submit(worker, ENDLESS)
    assert received.has_patch.wait(GENEROUS_S)
    worker.cancel(stream_id + 1000)
    worker.cancel(stream_id)
    worker.cancel(stream_id)
    assert received.has_ended.wait(GENEROUS_S)
    assert received.error_code == "CANCELLED"
    wait_until(lambda: (worker.stats().running, worker.stats().pages_used) == (0, 0))


def test_more_cancelled_steps_than_the_ring_has_slots_do_not_stop_it(worker):
    for _ in range(12):
        stream_id, received = submit(worker, ENDLESS)
        worker.cancel(stream_id)
        assert received.has_ended.wait(GENEROUS_S)
    assert len(finished(worker, SHORT).patches) == 3


def test_many_threads_may_submit(worker):
    results = []

    def run() -> None:
        results.append(finished(worker, SHORT).latents)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(latents == pytest.approx(results[0], abs=1e-5) for latents in results)


def test_encoding_is_that_of_this_process(worker, in_process):
    waveform = np.sin(np.arange(30_000, dtype=np.float32) / 9)
    latents = worker.encode(waveform, "left").result(GENEROUS_S)
    assert latents == pytest.approx(in_process.encode(waveform, "left"), abs=1e-5)


def test_what_an_answer_took_is_in_the_counters_behind_it(worker):
    before = worker.stats().num_encodings
    for number in range(1, 21):
        worker.encode(np.zeros(100, np.float32), "left").result(GENEROUS_S)
        assert worker.stats().num_encodings == before + number


def test_adapters_are_those_of_this_process(worker):
    root = Path(worker.config.lora_root)
    ref = add_adapter(root, worker.model, "x", alpha=2)
    assert worker.check_lora("x").result(GENEROUS_S).digest == ref.digest
    with pytest.raises(RequestError, match="there is no folder 'y' in lora_root"):
        worker.check_lora("y").result(GENEROUS_S)
    request = dataclasses.replace(SHORT, lora=ref)
    expected = Harness(NOISE_FOLDER, worker.config).run(request)
    assert finished(worker, request).latents == pytest.approx(expected.latents, abs=1e-5)
    unknown = dataclasses.replace(request, lora=dataclasses.replace(ref, digest="0" * 64))
    assert finished(worker, unknown).error_code == "UNKNOWN_LORA"


def test_the_stats_are_those_of_the_worker(worker):
    before = worker.stats()
    finished(worker, SHORT)
    after = worker.stats()
    assert (after.num_patches - before.num_patches, after.num_prefills - before.num_prefills) == (3, 1)
    assert after.max_running == CONFIG.max_running
    assert after.worker_pid not in (0, os.getpid())


@pytest.mark.parametrize(
    ("settings", "device", "kind", "message"),
    [
        ({"model": "no/such/folder"}, "cpu", ConfigError, "no/such/folder"),
        ({"max_text_tokens": 1}, "cpu", ConfigError, "the settings admit no request"),
        ({}, "cuda:99", ConfigError, "device: 'cuda:.*' is not there"),
    ],
)
def test_a_worker_that_cannot_start_says_why(settings, device, kind, message):
    with pytest.raises(kind, match=message):
        start_worker(dataclasses.replace(CONFIG, **settings), device)


def test_a_checkpoint_without_weights_is_named(tmp_path):
    for file in ("config.json", "tokenizer.json"):
        (tmp_path / file).write_bytes((NOISE_FOLDER / file).read_bytes())
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        start_worker(dataclasses.replace(CONFIG, model=str(tmp_path)), "cpu")


def test_every_step_is_seen_with_its_time(worker):
    wait_until(lambda: worker.stats().running == 0)
    turns = []
    first = worker.stats()
    worker.watch_turns(lambda before, after: turns.append((before, after)))
    try:
        finished(worker, SHORT)
        wait_until(lambda: turns and turns[-1][1].running == 0)
    finally:
        worker.watch_turns(lambda before, after: None)
    assert worker.gpu == "cpu"
    assert turns[0][0].num_steps == first.num_steps
    assert all(earlier[1] == later[0] for earlier, later in itertools.pairwise(turns))
    assert sum(after.num_steps - before.num_steps for before, after in turns) == 3
    steps = [(before, after) for before, after in turns if after.collected_ns > before.collected_ns]
    assert len(steps) == 3
    assert all(after.busy_ns > before.busy_ns for before, after in steps)


def test_one_message_carries_what_a_step_makes_for_all_streams(worker):
    wait_until(lambda: worker.stats().running == 0)
    turns = []  # one is one message
    worker.watch_turns(lambda before, after: turns.append((before, after)))
    try:
        streams = [submit(worker, ENDLESS_FOR_A_WHILE)[1] for _ in range(CONFIG.max_running)]
        assert all(stream.has_ended.wait(GENEROUS_S) for stream in streams)
        wait_until(lambda: turns[-1][1].running == 0)
    finally:
        worker.watch_turns(lambda before, after: None)
    num_steps = turns[-1][1].num_steps - turns[0][0].num_steps
    num_patches = sum(len(stream.patches) for stream in streams)
    assert max(after.num_patches - before.num_patches for before, after in turns) == CONFIG.max_running
    assert len(turns) <= num_steps + len(streams) < num_patches
